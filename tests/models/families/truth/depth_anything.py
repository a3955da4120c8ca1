"""Write depth_anything.npz: what a small Depth Anything of transformers 5.24 gives for a picture, weights random.

Run it on a picture, with transformers, torch, Pillow and onnxruntime installed: `python depth_anything.py picture.jpg`.
It leaves the network, model.onnx, in the folder in which it runs.

The file holds `predicted_depth` (1, 42, 70) of the export; `frame`, width and height; and, of the authors' own
`post_process_depth_estimation`, which enlarges it to the picture: `boxes` (n, 4) in source pixels and the median of
each, `medians`, and the `lowest` and `highest` value.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from PIL import Image
from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config, DPTImageProcessor

SIZE = {"height": 42, "width": 70}
BOXES = [[10, 20, 90, 120], [200, 40, 420, 300], [0, 0, 640, 426], [500, 300, 560, 420], [620, 400, 640, 426]]


class Exported(torch.nn.Module):
    """The network with the map as its only output."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, pixel_values):
        return self.network(pixel_values=pixel_values).predicted_depth


def depth_network():
    """Draw weights whose depth varies over the picture."""
    torch.manual_seed(1)
    backbone = Dinov2Config(
        image_size=56,
        patch_size=14,
        hidden_size=8,
        num_attention_heads=2,
        num_hidden_layers=4,
        mlp_ratio=2,
        out_indices=[1, 2, 3, 4],
        reshape_hidden_states=False,
        apply_layernorm=True,
        initializer_range=0.3,
    )
    config = DepthAnythingConfig(
        backbone_config=backbone,
        reassemble_hidden_size=8,
        neck_hidden_sizes=[4] * 4,
        fusion_hidden_size=4,
        head_hidden_size=4,
    )
    network = DepthAnythingForDepthEstimation(config).eval()
    with torch.no_grad():
        for weights in [*network.neck.parameters(), *network.head.parameters()]:
            weights.copy_(torch.randn_like(weights) * 0.35)
        network.head.conv3.weight.abs_()
        network.head.conv3.bias.fill_(0.5)
    return network


def main():
    network = depth_network()
    picture = Image.open(sys.argv[1]).convert("RGB")
    processor = DPTImageProcessor(size=SIZE, image_mean=[0.485, 0.456, 0.406], image_std=[0.229, 0.224, 0.225])
    pixels = processor(picture, return_tensors="pt")["pixel_values"]
    open_batch = {0: "batch"}
    torch.onnx.export(
        Exported(network),
        (pixels,),
        "model.onnx",
        input_names=["pixel_values"],
        output_names=["predicted_depth"],
        dynamic_axes={"pixel_values": open_batch, "predicted_depth": open_batch},
        dynamo=False,
    )
    session = onnxruntime.InferenceSession("model.onnx")
    (predicted,) = session.run(None, {"pixel_values": pixels.numpy()})
    with torch.no_grad():
        outputs = network(pixel_values=pixels)
    sizes = [(picture.height, picture.width)]
    depth = processor.post_process_depth_estimation(outputs, sizes)[0]["predicted_depth"].numpy()
    np.testing.assert_allclose(predicted, outputs.predicted_depth.numpy(), atol=1e-4)
    np.savez_compressed(
        Path(__file__).with_suffix(".npz"),
        predicted_depth=predicted,
        frame=np.array([picture.width, picture.height]),
        boxes=np.array(BOXES, np.float32),
        medians=np.array([np.median(depth[y1:y2, x1:x2]) for x1, y1, x2, y2 in BOXES], np.float32),
        lowest=depth.min(),
        highest=depth.max(),
    )


if __name__ == "__main__":
    main()
