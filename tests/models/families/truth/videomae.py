"""Write videomae.npz: what transformers 5.24 makes of its own VideoMAE, tiny and with random weights.

Run it with transformers, torch, torchvision and onnx installed: `python videomae.py`.

The file holds `network`, the bytes of the ONNX export; `config` and `preprocessor`, the texts of the JSON files that
transformers saves beside it; `frames` (10, 24, 32, 3) uint8 RGB, a video; `levels` (10, 3, 16, 16) uint8, its frames
from the authors' processor, before they are scaled; and `logits` (7, 5) of PyTorch for the clips that begin with frame
0 to 6.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from transformers import VideoMAEConfig, VideoMAEForVideoClassification, VideoMAEImageProcessor

FRAMES = 4
SIDE = 16
LABELS = {0: "walk", 1: "run", 2: "fall", 3: "sit", 4: "wave"}


def video(count: int) -> np.ndarray:
    """Return frames of waves that move, brightness and each color in another direction."""
    down, across = np.mgrid[:24, :32] / 8
    frames = []
    for index in range(count):
        brightness = 90 * np.sin(across + 0.6 * down + 0.9 * index)
        colors = [20 * np.sin(across * side - down / 2 + side + index * side) for side in (0.3, 0.6, 0.9)]
        frames.append(np.stack([127.5 + brightness + color for color in colors], axis=2))
    return np.array(frames).astype(np.uint8)


def main() -> None:
    """Export, run and save."""
    torch.manual_seed(11)
    config = VideoMAEConfig(
        image_size=SIDE,
        patch_size=8,
        num_frames=FRAMES,
        tubelet_size=2,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        initializer_range=0.6,  # or all clips have the same answer
        id2label=LABELS,
    )
    network = VideoMAEForVideoClassification(config).eval()
    size = {"height": SIDE, "width": SIDE}
    processor = VideoMAEImageProcessor(size={"shortest_edge": SIDE}, crop_size=size)
    frames = video(10)
    clips = [list(frames[first : first + FRAMES]) for first in range(len(frames) - FRAMES + 1)]
    pixel_values = torch.cat([processor(clip, return_tensors="pt")["pixel_values"] for clip in clips])
    scaled = processor([list(frames)], return_tensors="pt")["pixel_values"][0].numpy() * 127.5 + 127.5
    levels = np.rint(scaled).astype(np.uint8)
    assert abs(scaled - levels).max() < 1e-3
    with torch.no_grad():
        logits = network(pixel_values).logits
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        config.architectures = [type(network).__name__]
        config.save_pretrained(folder)
        processor.save_pretrained(folder)
        torch.onnx.export(
            network,
            (pixel_values[:1],),
            folder / "model.onnx",
            input_names=["pixel_values"],
            output_names=["logits"],
            dynamic_axes={"pixel_values": {0: "batch_size"}, "logits": {0: "batch_size"}},
            dynamo=False,
        )
        np.savez_compressed(
            Path(__file__).with_suffix(".npz"),
            network=np.frombuffer((folder / "model.onnx").read_bytes(), np.uint8),
            config=np.array((folder / "config.json").read_text()),
            preprocessor=np.array((folder / "preprocessor_config.json").read_text()),
            frames=frames,
            levels=levels,
            logits=logits.numpy(),
        )


if __name__ == "__main__":
    main()
