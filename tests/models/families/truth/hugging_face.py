"""Write hugging_face.npz: what transformers 5.24.0 makes of its own DINOv3, CLIP and SegFormer, small, weights random.

Run it on a picture, with transformers, torch, onnx and onnxruntime installed: `python hugging_face.py picture.jpg`.

For each network the file holds the outputs of its ONNX export for the picture, as `NETWORK.OUTPUT`. For DINOv3 and CLIP
`NETWORK.vector` is the image's vector: `pooler_output`, and `get_image_features`. For SegFormer `segformer.classes` is
the map of `post_process_semantic_segmentation` in the picture's size.
"""

import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import onnxruntime
import torch
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPVisionModelWithProjection,
    DINOv3ViTConfig,
    DINOv3ViTModel,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SegformerImageProcessor,
)

SIZE = 96
SMALL = {
    "hidden_size": 24,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": SIZE,
}


class Exported(torch.nn.Module):
    """A network with outputs by name, as Optimum exports them."""

    def __init__(self, network: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.network = network
        self.names = names

    def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs."""
        outputs = self.network(pixel_values)
        return tuple(getattr(outputs, name) for name in self.names)


def outputs_of(network: torch.nn.Module, names: list[str], image: torch.Tensor) -> dict[str, np.ndarray]:
    """Export a network, and run the export on an image."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.onnx"
        torch.onnx.export(
            Exported(network, names).eval(),
            (image,),
            path,
            input_names=["pixel_values"],
            output_names=names,
            dynamo=False,
        )
        session = onnxruntime.InferenceSession(path)
        return dict(zip(names, session.run(None, {"pixel_values": image.numpy()}), strict=True))


def main() -> None:
    """Export, run and save."""
    torch.manual_seed(1)
    picture = cv2.imread(sys.argv[1])[:180, :240, ::-1]
    resized = cv2.resize(picture, (SIZE, SIZE)) / 255
    image = torch.from_numpy(((resized - 0.45) / 0.225).transpose(2, 0, 1)[None].astype(np.float32))
    saved = {"frame": np.array(picture.shape[1::-1])}

    dinov3 = DINOv3ViTModel(DINOv3ViTConfig(**SMALL, patch_size=16, num_register_tokens=4)).eval()
    clip = CLIPModel(
        CLIPConfig(vision_config={**SMALL, "patch_size": 32, "projection_dim": 16}, projection_dim=16)
    ).eval()
    vision = CLIPVisionModelWithProjection(clip.config.vision_config).eval()
    vision.load_state_dict({name: value for name, value in clip.state_dict().items() if name.startswith("vis")})
    with torch.no_grad():
        saved["dinov3.vector"] = dinov3(image).pooler_output.numpy()
        features = clip.get_image_features(pixel_values=image)
        saved["clip.vector"] = getattr(features, "pooler_output", features).numpy()
    for name, network, names in (
        ("dinov3", dinov3, ["last_hidden_state", "pooler_output"]),
        ("clip", vision, ["image_embeds", "last_hidden_state"]),
    ):
        saved |= {f"{name}.{output}": array for output, array in outputs_of(network, names, image).items()}

    segformer = SegformerForSemanticSegmentation(
        SegformerConfig(
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            decoder_hidden_size=32,
            num_labels=5,
            num_attention_heads=[1, 2, 3, 4],
        )
    )
    logits = outputs_of(segformer, ["logits"], image)["logits"]
    logits = (logits - logits.mean(axis=(2, 3), keepdims=True)) / logits.std()
    logits = logits.astype(np.float16).astype(np.float32)
    maps = SegformerImageProcessor().post_process_semantic_segmentation(
        SimpleNamespace(logits=torch.from_numpy(logits)), target_sizes=[picture.shape[:2]]
    )
    saved["segformer.logits"] = logits.astype(np.float16)
    saved["segformer.classes"] = maps[0].numpy().astype(np.uint8)
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **saved)
    print({name: array.shape for name, array in saved.items()}, np.bincount(saved["segformer.classes"].ravel()))


if __name__ == "__main__":
    main()
