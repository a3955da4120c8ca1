"""Write x3d.npz: what PyTorchVideo 0.1.5 makes of its own X3D, small and with random weights.

Run it with pytorchvideo, torch, torchvision and onnx installed: `python x3d.py`.

The file holds `network`, the bytes of the ONNX export; `frames` (10, 40, 48, 3) uint8 RGB, a video; `levels`
(10, 3, 32, 32) float16, its frames from the authors' transforms, times 255 and before the mean is subtracted; and
`probabilities` (7, 5) of PyTorch for the clips that begin with frame 0 to 6.
"""

import sys
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torchvision.transforms import functional

# PyTorchVideo imports a module that torchvision has renamed since.
renamed = ModuleType("torchvision.transforms.functional_tensor")
renamed.rgb_to_grayscale = functional.rgb_to_grayscale
sys.modules[renamed.__name__] = renamed

from pytorchvideo.models.x3d import create_x3d  # noqa: E402
from pytorchvideo.transforms import Normalize, ShortSideScale  # noqa: E402

FRAMES = 4
SIDE = 32
CLASSES = 5


def video(count: int) -> np.ndarray:
    """Return frames of waves that move, brightness and each color in another direction."""
    down, across = np.mgrid[:40, :48] / 12
    frames = []
    for index in range(count):
        brightness = 90 * np.sin(across + 0.6 * down + 0.9 * index)
        colors = [20 * np.sin(across * side - down / 2 + side + index * side) for side in (0.3, 0.6, 0.9)]
        frames.append(np.stack([127.5 + brightness + color for color in colors], axis=2))
    return np.array(frames).astype(np.uint8)


def main() -> None:
    """Export, run and save."""
    torch.manual_seed(3)
    network = create_x3d(
        input_clip_length=FRAMES,
        input_crop_size=SIDE,
        model_num_class=CLASSES,
        stem_dim_in=4,
        width_factor=1.0,
        depth_factor=0.5,
        bottleneck_factor=1.0,
        head_dim_out=32,
    ).eval()
    frames = video(10)
    clip = torch.from_numpy(frames).permute(3, 0, 1, 2) / 255
    cropped = functional.center_crop(ShortSideScale(SIDE)(clip), [SIDE, SIDE])
    scaled = Normalize((0.45,) * 3, (0.225,) * 3)(cropped)
    clips = torch.stack([scaled[:, first : first + FRAMES] for first in range(len(frames) - FRAMES + 1)])
    with torch.no_grad():
        for norm in network.modules():  # random weights alone give all clips one answer
            if isinstance(norm, torch.nn.BatchNorm3d):
                norm.momentum = None
                norm.train()
        network(clips)
        network.eval()
        head = network.blocks[-1]
        head.proj.weight *= 40
        head.activation = None
        head.proj.bias -= network(clips).mean(dim=0)
        head.activation = torch.nn.Softmax(dim=1)
        probabilities = network(clips)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "x3d.onnx"
        torch.onnx.export(
            network,
            (clips[:1],),
            path,
            input_names=["video"],
            output_names=["probabilities"],
            dynamic_axes={"video": {0: "batch"}, "probabilities": {0: "batch"}},
            dynamo=False,
        )
        np.savez_compressed(
            Path(__file__).with_suffix(".npz"),
            network=np.frombuffer(path.read_bytes(), np.uint8),
            frames=frames,
            levels=(cropped.permute(1, 0, 2, 3) * 255).numpy().astype(np.float16),
            probabilities=probabilities.numpy(),
        )
    print(probabilities.argmax(dim=1).tolist(), probabilities.max(dim=1).values.tolist())


if __name__ == "__main__":
    main()
