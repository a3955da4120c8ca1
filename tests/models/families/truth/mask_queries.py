"""Write mask_queries.npz: what transformers 5.24.0 makes of its own Mask2Former and EoMT, small, weights random.

Run it on a picture, with transformers, torch, onnx and onnxruntime installed: `python mask_queries.py picture.jpg`.

For each network the file holds `classes` and `masks`, its outputs for the picture, and `score` and `class_id` of the
instances that `post_process_instance_segmentation` returns.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import torch
from transformers import (
    EomtConfig,
    EomtForUniversalSegmentation,
    EomtImageProcessor,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    Mask2FormerImageProcessor,
    SwinConfig,
)

SIZE = 96
QUERIES = 12
CLASSES = 5
MIN_SCORE = 0.5


def mask2former() -> Mask2FormerForUniversalSegmentation:
    """A small Mask2Former."""
    swin = SwinConfig(
        image_size=SIZE,
        embed_dim=16,
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 2, 4],
        window_size=3,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )
    config = Mask2FormerConfig(
        backbone_config=swin,
        feature_size=32,
        mask_feature_size=32,
        hidden_dim=32,
        encoder_feedforward_dim=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=2,
        dim_feedforward=32,
        num_queries=QUERIES,
        num_labels=CLASSES,
    )
    return Mask2FormerForUniversalSegmentation(config)


def eomt() -> EomtForUniversalSegmentation:
    """A small EoMT."""
    config = EomtConfig(
        image_size=SIZE,
        patch_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_blocks=1,
        num_upscale_blocks=2,
        num_queries=QUERIES,
        num_labels=CLASSES,
    )
    return EomtForUniversalSegmentation(config)


def arrays(network: torch.nn.Module, processor: object, image: torch.Tensor) -> dict[str, np.ndarray]:
    """The outputs of a network, scaled so that classes and masks vary, and the authors' instances."""
    network.eval()
    with torch.no_grad():
        outputs = network(pixel_values=image)
    classes = outputs.class_queries_logits
    masks = outputs.masks_queries_logits
    classes = 4 * (classes - classes.mean(1, keepdim=True)) / classes.std()
    masks = torch.nn.functional.avg_pool2d(masks, 9, 1, 4)  # smooth, as trained ones
    masks = 6 * (masks - masks.mean()) / masks.std(dim=(2, 3), keepdim=True)
    masks = masks.half().float()
    scaled = SimpleNamespace(class_queries_logits=classes, masks_queries_logits=masks)
    more = {"return_binary_maps": True} if isinstance(processor, Mask2FormerImageProcessor) else {}
    segments = processor.post_process_instance_segmentation(
        scaled, threshold=MIN_SCORE, target_sizes=[(SIZE, SIZE)], **more
    )[0]["segments_info"]
    return {
        "classes": classes.numpy(),
        "masks": masks.numpy().astype(np.float16),
        "score": np.array([segment["score"] for segment in segments]),
        "class_id": np.array([segment["label_id"] for segment in segments]),
    }


def main() -> None:
    """Run both, and save."""
    torch.manual_seed(0)
    picture = cv2.resize(cv2.imread(sys.argv[1])[:, :, ::-1], (SIZE, SIZE)) / 255
    image = torch.from_numpy(((picture - 0.45) / 0.225).transpose(2, 0, 1)[None].astype(np.float32))
    processors = Mask2FormerImageProcessor(), EomtImageProcessor(size={"shortest_edge": SIZE, "longest_edge": SIZE})
    saved = {}
    for name, network, processor in zip(("mask2former", "eomt"), (mask2former(), eomt()), processors, strict=True):
        saved |= {f"{name}_{key}": array for key, array in arrays(network, processor, image).items()}
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **saved)
    print({key: (array.shape, array.tolist() if array.ndim == 1 else "") for key, array in saved.items()})


if __name__ == "__main__":
    main()
