"""Write padim.npz: what anomalib 2.7 exports of a small PaDiM gives for parts of a picture, weights random.

Run it on a picture, with anomalib, onnx, onnxscript and onnxruntime installed: `python padim.py picture.jpg`. It leaves
the network below weights/ in the folder in which it runs.

The file holds `pred_score`, `pred_label`, `anomaly_map` and `pred_mask` of the export for four parts of the picture,
the last of which is noise.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from anomalib.models import Padim
from PIL import Image

SIDE = 32
FITTED = 24


def parts(picture):
    """Return random parts of the picture, (FITTED + 3, 3, SIDE, SIDE), and one of noise."""
    random = np.random.default_rng(1)
    corners = random.integers(0, np.array(picture.shape[:2]) - 4 * SIDE, (FITTED + 3, 2))
    cut = [picture[y : y + 4 * SIDE : 4, x : x + 4 * SIDE : 4] for y, x in corners]
    noise = random.integers(0, 256, (SIDE, SIDE, 3))
    return torch.tensor(np.stack([*cut, noise]).transpose(0, 3, 1, 2) / 255, dtype=torch.float32)


def main():
    torch.manual_seed(1)
    images = parts(np.asarray(Image.open(sys.argv[1]).convert("RGB")))
    pre_processor = Padim.configure_pre_processor(image_size=(SIDE, SIDE))
    network = Padim("resnet18", ["layer1"], pre_trained=False, n_features=8, pre_processor=pre_processor)
    network.model.train()
    with torch.no_grad():
        network.model(pre_processor(images[:FITTED]))
        network.model.fit()
        network.eval()
        raw = network.model(pre_processor(images))
        fitted = network.post_processor
        for name, values in (("image", raw.pred_score), ("pixel", raw.anomaly_map)):
            getattr(fitted, f"{name}_min").copy_(values.min())
            getattr(fitted, f"{name}_max").copy_(values.max())
            getattr(fitted, f"_{name}_threshold").copy_((values[:-1].max() + values[-1].max()) / 2)
    file = network.to_onnx(Path(), input_size=(SIDE, SIDE))
    session = onnxruntime.InferenceSession(file)
    names = [output.name for output in session.get_outputs()]
    outputs = session.run(None, {"input": images[FITTED:].numpy()})
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **dict(zip(names, outputs, strict=True)))


if __name__ == "__main__":
    main()
