# SPDX-License-Identifier: Apache-2.0
"""Options of ONNX Runtime's TensorRT provider: experimental, because its libraries come with no package of streamkit.

The options follow ONNX Runtime's documentation of the provider. An f16 network runs in f16, an int8 one (`models
quantize --symmetric`) in int8, any other in f32, or in f16 with `precision: f16`.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from streamkit.core.errors import OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import CACHE_FIX, writing
from streamkit.models.file_version import FileVersion, file_version
from streamkit.models.network import ModelInfo, sha256
from streamkit.models.onnx_graph import is_quantized
from streamkit.models.onnxruntime_package import need_onnxruntime

Shape = tuple[int, ...]

EXPERIMENTAL = (
    "engine: tensorrt is experimental: streamkit's tests cannot run it; compare its results with the CPU's before "
    "you rely on it"
)


def cache_folder() -> Path:
    """Return the user's folder for engines."""
    return user_cache("tensorrt")


def tensorrt_options(
    info: ModelInfo, f16: bool = False, shapes: Mapping[str, tuple[Shape, Shape, Shape]] | None = None
) -> dict[str, str]:
    """Return the provider's options for a network, without device and stream; creates the cache folder.

    An engine is valid for one network, one ONNX Runtime and one set of shapes, and the provider checks only the last:
    each gets a folder of its own. The timing cache is shared by all.

    Args:
        info: the network.
        f16: whether an f32 network is computed in f16.
        shapes: of each input with open dimensions, the least, the usual and the largest shape: one engine then serves
            all of them. Without it, the engine is built again whenever a shape leaves the range so far.

    Raises:
        OutputError: the folder cannot be created.
    """
    # a network with f32 or u8 images may compute in f16; its weights then have that type
    f16 = f16 or info.dtype == "f16" or _f16_weights(info.file, file_version(info.file))
    options = {
        "trt_fp16_enable": str(f16),
        "trt_int8_enable": str(is_quantized(info.file)),
        "trt_engine_cache_enable": "True",
        "trt_timing_cache_enable": "True",
    }
    for place, which in enumerate(("min", "opt", "max")):
        if shapes:
            options[f"trt_profile_{which}_shapes"] = ",".join(
                f"{name}:{'x'.join(map(str, profile[place]))}" for name, profile in shapes.items()
            )
    digest = hashlib.sha256(repr((sha256(info.file), need_onnxruntime().__version__, sorted(options.items()))).encode())
    folder = cache_folder() / f"{info.file.stem}-{digest.hexdigest()[:16]}"
    timing = cache_folder()
    with writing(folder, CACHE_FIX):
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise OutputError(f"cannot write TensorRT's engines to {folder}; {CACHE_FIX}")
    return options | {"trt_engine_cache_path": str(folder), "trt_timing_cache_path": str(timing)}


@functools.lru_cache(maxsize=16)
def _f16_weights(file: Path, version: FileVersion) -> bool:
    try:
        import onnx
    except ImportError:
        return False  # the type of the images decides alone
    model = onnx.load(file, load_external_data=False)
    return any(initializer.data_type == onnx.TensorProto.FLOAT16 for initializer in model.graph.initializer)
