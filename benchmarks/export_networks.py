"""Exports networks with random weights, by their authors' packages, to measure speed and what the fused engine runs.

    python benchmarks/export_networks.py FOLDER [NAME ...] [--classes 80] [--small]
    python benchmarks/export_networks.py FOLDER --restore NAME.small.onnx ...

NAME is one of those below, or a configuration of Ultralytics such as yolo11n-seg. The packages (torch with ultralytics,
transformers or rfdetr) are no dependencies of streamkit: install them in an environment of their own. `--small` writes
NAME.small.onnx without weights, a few hundred kilobytes, and `--restore` makes NAME.onnx from it where only `onnx` is
installed, with the same weights.

Weights are drawn from seeds. Those of a convolution are scaled until its outputs have a standard deviation of 1 on
frames of samples/street.mp4: values neither vanish nor pass what f16 can hold. The networks find nothing; biases stay
as they are, so that scores are low.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

NETWORKS = ("yolov8n", "yolov8m", "yolo11m", "yolo26m", "rtdetr-l", "rtdetr-r50", "dfine-l", "rf-detr-m")
CLASSES = 80
SMALL = ".small.onnx"
_WEIGHTS = "random weights"  # the key of a small file's metadata
_MIN_SIZE = 2048  # values of a weight that is drawn; smaller arrays stay in the file
_IMAGES = 2


# ------------------------------------------------------------------------------------------------ authors' packages


def export(name: str, file: Path, classes: int = CLASSES) -> None:
    """Write a network as its authors' package exports it, with a dynamic batch size.

    Args:
        name: of `NETWORKS`, or a configuration of Ultralytics.
        file: the ONNX file to write.
        classes: that it tells apart.
    """
    exporter = _EXPORTERS.get(name, _ultralytics)
    with tempfile.TemporaryDirectory(prefix="streamkit-export-") as folder, contextlib.chdir(folder):
        shutil.move(exporter(name, classes), file)


def _ultralytics(name: str, classes: int) -> Path:
    from ultralytics import RTDETR, YOLO

    network = (RTDETR if name.startswith("rtdetr") else YOLO)(f"{name}.yaml")
    if classes != CLASSES:
        model = type(network.model)(network.model.yaml, nc=classes, verbose=False)
        model.args = network.model.args
        model.task = network.model.task
        network.model = model
    return Path(network.export(format="onnx", dynamic=True, imgsz=640))


def _rtdetr_r50(name: str, classes: int) -> Path:
    from transformers import RTDetrConfig, RTDetrForObjectDetection

    config = RTDetrConfig(num_labels=classes)
    config.backbone_config.out_features = ["stage2", "stage3", "stage4"]
    return _transformers(RTDetrForObjectDetection(config))


def _dfine_l(name: str, classes: int) -> Path:
    """D-FINE-L: the backbone HGNetV2-B4, whose sizes are those of the authors' repository."""
    from transformers import DFineConfig, DFineForObjectDetection, HGNetV2Config

    backbone = HGNetV2Config(
        stem_channels=[3, 32, 48],
        stage_in_channels=[48, 128, 512, 1024],
        stage_mid_channels=[48, 96, 192, 384],
        stage_out_channels=[128, 512, 1024, 2048],
        stage_num_blocks=[1, 1, 3, 1],
        stage_downsample=[False, True, True, True],
        stage_light_block=[False, False, True, True],
        stage_kernel_size=[3, 3, 5, 5],
        stage_numb_of_layers=[6, 6, 6, 6],
        out_features=["stage2", "stage3", "stage4"],
        use_learnable_affine_block=False,
    )
    return _transformers(DFineForObjectDetection(DFineConfig(backbone_config=backbone, num_labels=classes)))


def _transformers(network: Any) -> Path:
    import torch

    class Outputs(torch.nn.Module):  # type: ignore[misc]
        """The network with a tuple in place of a dictionary."""

        def forward(self, pixel_values: Any) -> tuple[Any, Any]:
            outputs = network(pixel_values)
            return outputs.logits, outputs.pred_boxes

    network.eval()
    names = ["pixel_values", "logits", "pred_boxes"]
    torch.onnx.export(
        Outputs(),
        (torch.rand(2, 3, 640, 640),),
        "network.onnx",
        input_names=names[:1],
        output_names=names[1:],
        dynamic_axes={name: {0: "batch"} for name in names},
        opset_version=17,
        dynamo=False,
    )
    return Path("network.onnx")


def _rf_detr_m(name: str, classes: int) -> Path:
    from rfdetr import RFDETRMedium

    network = RFDETRMedium(pretrain_weights=None, device="cpu", num_classes=classes)
    return Path(network.export(output_dir=".", dynamic_batch=True, verbose=False))


_EXPORTERS: dict[str, Callable[[str, int], Path]] = {
    "rtdetr-r50": _rtdetr_r50,
    "dfine-l": _dfine_l,
    "rf-detr-m": _rf_detr_m,
}


# ------------------------------------------------------------------------------------------------ weights


def strip_weights(file: Path, small: Path) -> None:
    """Write a network without its weights, and how they are drawn.

    Args:
        file: the ONNX file, with one input for images.
        small: the file to write.
    """
    import onnx

    model = onnx.load(file)
    deviations = _first_deviations(model)
    _draw(model, deviations)
    deviations.update(_calibrated(model, deviations))
    for tensor in model.graph.initializer:
        if tensor.name in deviations:
            tensor.ClearField("raw_data")
    model.metadata_props.add(key=_WEIGHTS, value=json.dumps(deviations))
    onnx.save(model, small)


def restore_weights(small: Path, file: Path) -> None:
    """Write the network of a small file, with its weights.

    Raises:
        ValueError: it is no such file.
    """
    import onnx

    model = onnx.load(small)
    deviations = {entry.key: entry.value for entry in model.metadata_props}.get(_WEIGHTS)
    if deviations is None:
        raise ValueError(f"{small} is not a file that --small has written")
    others = [entry for entry in model.metadata_props if entry.key != _WEIGHTS]
    del model.metadata_props[:]
    model.metadata_props.extend(others)
    _draw(model, json.loads(deviations))
    onnx.save(model, file)


def _first_deviations(model: Any) -> dict[str, float]:
    """Return the standard deviation of each large weight of a layer, before convolutions are calibrated.

    A convolution's is 1 / sqrt(values that it sums); a matrix keeps the one that the package gave it.
    """
    from onnx import TensorProto, numpy_helper

    readers = {
        name: node.op_type
        for node in model.graph.node
        for name in node.input
        if node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm")
    }
    deviations = {}
    for tensor in model.graph.initializer:
        size = int(np.prod(tensor.dims))
        if tensor.name not in readers or tensor.data_type != TensorProto.FLOAT or size < _MIN_SIZE:
            continue
        if readers[tensor.name].startswith("Conv"):
            deviations[tensor.name] = float(1 / np.sqrt(size / tensor.dims[0]))
        else:
            deviations[tensor.name] = float(numpy_helper.to_array(tensor).std())
    return deviations


def _draw(model: Any, deviations: dict[str, float]) -> None:
    """Put random values into the weights of a network, in place; the place of a weight is its seed."""
    for place, tensor in enumerate(model.graph.initializer):
        if tensor.name in deviations:
            values = np.random.default_rng(place).standard_normal(tuple(tensor.dims), np.float32)
            tensor.ClearField("float_data")
            tensor.raw_data = (values * np.float32(deviations[tensor.name])).astype("<f4").tobytes()


def _calibrated(model: Any, deviations: dict[str, float]) -> dict[str, float]:
    """Return the deviations of convolutions with which their outputs, without bias, have a deviation of 1."""
    import onnx
    import torch

    from benchmarks.torch_network import TorchNetwork
    from streamkit.engine.graph import simplify

    calibrated = dict[str, float]()

    class Calibrating(TorchNetwork):
        """The network, which scales each convolution before what follows it runs."""

        def compute(self, node: Any, inputs: list[Any]) -> Any:
            outputs = super().compute(node, inputs)
            if node.operator != "Conv" or node.inputs[1] not in deviations:
                return outputs
            bias = inputs[2].reshape(1, -1, 1, 1) if len(inputs) > 2 else 0
            deviation = float((outputs - bias).std()) + 1e-12
            calibrated.setdefault(node.inputs[1], deviations[node.inputs[1]] / deviation)
            return (outputs - bias) / deviation + bias

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    image = copy.graph.input[0]
    sides = [dim.dim_value or 640 for dim in image.type.tensor_type.shape.dim[2:]]
    graph = simplify(copy, {image.name: (_IMAGES, 3, *sides)})
    with torch.no_grad():
        Calibrating(graph, torch.float32, "cpu")(torch.from_numpy(sample_frames((sides[1], sides[0]), _IMAGES)))
    return calibrated


def sample_frames(size_wh: tuple[int, int], count: int) -> np.ndarray:
    """Return frames of the sample video, one second apart, (count, 3, height, width) f32 from 0 to 1."""
    import cv2

    video = cv2.VideoCapture(str(_ROOT / "samples" / "street.mp4"))
    length = int(video.get(cv2.CAP_PROP_FRAME_COUNT))
    frames = []
    for place in range(count):
        video.set(cv2.CAP_PROP_POS_FRAMES, 30 * place % length)
        _, image = video.read()
        frames.append(cv2.resize(image[:, :, ::-1], size_wh).transpose(2, 0, 1) / np.float32(255))
    return np.stack(frames).astype(np.float32)


# ------------------------------------------------------------------------------------------------ command


def run(folder: Path, names: list[str], classes: int, small: bool) -> Iterator[Path]:
    """Export networks into a folder; yield each file."""
    for name in names:
        without_weights = folder / f"{name}{SMALL}"
        with tempfile.TemporaryDirectory(prefix="streamkit-export-") as scratch:
            exported = Path(scratch) / "network.onnx"
            export(name, exported, classes)
            strip_weights(exported, without_weights)
        if small:
            yield without_weights
            continue
        restore_weights(without_weights, folder / f"{name}.onnx")
        without_weights.unlink()
        yield folder / f"{name}.onnx"


def restore(folder: Path, small_files: list[Path]) -> Iterator[Path]:
    """Make networks in a folder from files without weights; yield each file."""
    for small in small_files:
        file = folder / (small.name.removesuffix(SMALL) + ".onnx")
        restore_weights(small, file)
        yield file


def main() -> None:
    """Export, or restore weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default {', '.join(NETWORKS)}")
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--small", action="store_true", help="write files without weights")
    parser.add_argument("--restore", nargs="+", type=Path, metavar="FILE", help="make networks from such files")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = options.folder.resolve()
    files = (
        restore(folder, options.restore)
        if options.restore
        else run(folder, options.names or list(NETWORKS), options.classes, options.small)
    )
    try:
        for file in files:
            print(f"{file}: {os.path.getsize(file) / 1e6:.1f} MB")
    except ModuleNotFoundError as error:
        sys.exit(f"the package {error.name} is missing; --restore needs onnx only")
    except (OSError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
