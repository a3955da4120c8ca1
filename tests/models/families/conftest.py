"""Outputs of every family: random ones, and those of real networks on real pictures."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.detector_forms import FORMS, random_outputs

REAL = {
    # family: file, size, resize, anchor, rgb in 0..1
    "yolox": ("yolox_nano_dyn.onnx", (416, 416), "top_left", False),
    "yolov8": ("yolov8n_640_deq_dyn.onnx", (640, 640), "center", True),
    "detr": ("deimv2_hgnetv2_atto_coco.onnx", (320, 320), "stretch", True),
    "yunet": ("yunet_n_dynamic.onnx", (320, 320), "top_left", False),
}


class RealOutputs:
    """What the real network of a family gives on the first pictures of the COCO set, batch by batch."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.pictures = sorted((data / "coco" / "val2017").glob("*.jpg"))
        self._runs: dict[tuple[str, int], SimpleNamespace] = {}

    def __call__(self, family: str, n: int) -> SimpleNamespace:
        if (family, n) not in self._runs:
            self._runs[family, n] = self._run(family, n)
        return self._runs[family, n]

    def _run(self, family: str, n: int) -> SimpleNamespace:
        import cv2
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        file, size, placing, unit = REAL[family]
        tensors = []
        geometry = []
        sizes = []
        for path in self.pictures[:n]:
            picture = cv2.imread(str(path))
            high, wide = picture.shape[:2]
            if placing == "stretch":
                scale = (size[0] / wide, size[1] / high)
                start = (0, 0)
                tensor = cv2.resize(picture, size)
            else:
                scale_of_sides = min(size[0] / wide, size[1] / high)
                w = round(wide * scale_of_sides)
                h = round(high * scale_of_sides)
                start = ((size[0] - w) // 2, (size[1] - h) // 2) if placing == "center" else (0, 0)
                tensor = np.full((size[1], size[0], 3), 114, np.uint8)
                tensor[start[1] : start[1] + h, start[0] : start[0] + w] = cv2.resize(picture, (w, h))
                scale = (w / wide, h / high)
            tensors.append(tensor[..., ::-1].astype(np.float32) / 255 if unit else tensor.astype(np.float32))
            geometry.append((*scale, *start))
            sizes.append((wide, high))
        session = onnxruntime.InferenceSession(self.data / "models" / file, providers=["CPUExecutionProvider"])
        inputs = {session.get_inputs()[0].name: np.ascontiguousarray(np.stack(tensors).transpose(0, 3, 1, 2))}
        if family == "detr":
            inputs["orig_target_sizes"] = np.array(sizes, np.int64)
        names = [output.name for output in session.get_outputs()]
        return SimpleNamespace(
            outputs=dict(zip(names, session.run(None, inputs), strict=True)),
            geometry=np.array(geometry, np.float32),
            sizes=np.array(sizes),
            input_size=size,
            classes=1 if family == "yunet" else 80,
            ids=[int(path.stem) for path in self.pictures[:n]],
        )


@pytest.fixture(scope="session")
def outputs_for():
    """`random_outputs`."""
    return random_outputs


@pytest.fixture(scope="session")
def real(test_data):
    return RealOutputs(test_data)


@pytest.fixture(params=FORMS)
def form(request):
    return request.param
