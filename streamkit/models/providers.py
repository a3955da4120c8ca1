# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime's execution providers: their options, and an error if a requested one did not load."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streamkit.core.data import Device
from streamkit.core.errors import DeviceError, ModelError
from streamkit.core.text import gpu_command
from streamkit.engine.frontend import import_cudnn
from streamkit.models.network_file import short
from streamkit.models.upsample import for_cuda
from streamkit.ops.cuda.driver import loaded_libraries

logger = logging.getLogger(__name__)

PROVIDERS = {
    "tensorrt": "TensorrtExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
"""ONNX Runtime's names, by the names that a YAML uses."""

_preloading = threading.Lock()
_preloaded: list[str] = []


def provider_options(
    names: Sequence[str],
    device: Device,
    stream: int,
    tf32: bool = False,
    quick: bool = False,
    tensorrt: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """Return the options of each provider in `names`. `stream` is the CUDA stream's address, 0 for the CPU.

    `tf32` rounds products to 11 bits of mantissa. `quick` uses the first working convolution algorithm, found in a
    tenth of the time and an eighth as fast. `tensorrt` has the options of that provider, see `tensorrt_options`.

    Raises:
        DeviceError: a provider does not match the device.
    """
    if device.kind == "cpu":
        if tuple(names) != ("cpu",):
            raise DeviceError(f"the provider {names[0]} needs device: cuda, not {device}")
        return [{}]
    shared = {"device_id": str(device.index), "user_compute_stream": str(stream)}
    options = {
        "cuda": {
            # The default, EXHAUSTIVE, costs seconds for each new shape and was within 6 % of HEURISTIC.
            "cudnn_conv_algo_search": "DEFAULT" if quick else "HEURISTIC",
            "cudnn_conv_use_max_workspace": "1",
            # The other strategy doubles the arena each time it grows, out of memory that decoders need.
            "arena_extend_strategy": "kSameAsRequested",
            "use_tf32": str(int(tf32)),
        },
        "tensorrt": dict(tensorrt or {}),
    }
    return [{**shared, **options[name]} if name in options else {} for name in names]


def load_libraries() -> str:
    """Load the libraries of CUDA and cuDNN, once in a process; return what ONNX Runtime prints of those that it lacks.

    It prints to standard output, which may carry records, and which is replaced for all threads meanwhile.

    ONNX Runtime and cuDNN's frontend search for cuDNN in different places. Two versions of it in one process end in
    errors and aborts, so that ONNX Runtime takes the one that is loaded.
    """
    with _preloading:
        if not _preloaded:
            import onnxruntime as ort

            try:
                import_cudnn()  # it loads cuDNN by its path
            except ImportError as error:  # ONNX Runtime loads one itself
                logger.debug(f"cuDNN's frontend is not used: {error}")
            folders = cudnn_folders()
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                ort.preload_dlls(cudnn=not folders)
            _preloaded.append(printed.getvalue())
            folders = cudnn_folders()
            if len(folders) > 1:
                logger.warning(
                    f"cuDNN is loaded from {' and '.join(folders)}, and two versions in one process fail; remove one "
                    "of them, or take it off LD_LIBRARY_PATH"
                )
    return _preloaded[0]


def cudnn_folders(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Return the folders of the cuDNN libraries that this process has loaded; empty where that is not known."""
    return sorted({str(Path(library).resolve().parent) for library in loaded_libraries("libcudnn", maps)})


def open_session(
    file: Path, names: Sequence[str], provider_options: list[dict[str, str]], threads: int, part: bytes | None = None
) -> Any:
    """Create ONNX Runtime's session and check that the requested providers are in it.

    Args:
        file: the network's file.
        names: of the providers, see `PROVIDERS`.
        provider_options: of each, see `provider_options`.
        threads: of the CPU, for a run.
        part: a part of the network, serialized, to run in place of all of it.

    Raises:
        ModelError: the file cannot be loaded on the CPU.
        DeviceError: a provider did not load, or cannot run the file.
    """
    import onnxruntime as ort

    # Problems that matter are raised. Otherwise it warns about unused plugins, and logs an error if cuDNN has no
    # algorithm of the first kind for a convolution and falls back to another kind.
    ort.set_default_logger_severity(4)
    requested = [PROVIDERS[name] for name in names]
    missing = [name for name in requested if name not in ort.get_available_providers()]
    if missing:
        raise DeviceError(
            f"the installed ONNX Runtime {ort.__version__} has no {missing[0]} (it has "
            f"{', '.join(ort.get_available_providers())}). {_fix(missing[0])}"
        )
    printed = load_libraries() if "cuda" in names or "tensorrt" in names else ""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # On the CPU it logs only what it raises too. A GPU provider that does not load logs why.
    options.log_severity_level = 4 if requested == [PROVIDERS["cpu"]] else 3
    # A thread that spins while it waits takes its core away from the decoders and the other instances.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if requested[0] != PROVIDERS["cpu"]:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        if "cpu" not in names:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    network: Path | bytes | None = part
    if network is None:
        network = file if requested[0] == PROVIDERS["cpu"] else for_cuda(file)
    try:
        session = ort.InferenceSession(
            network, options, providers=list(zip(requested, provider_options, strict=True)), enable_fallback=0
        )
    except Exception as error:
        # ONNX Runtime's exceptions have no common base but Exception.
        if requested == [PROVIDERS["cpu"]]:
            raise ModelError(f"{file} cannot be loaded: {short(error)}") from None
        reason = " ".join([short(error), *printed.split()])
        raise DeviceError(
            f"{file.name} cannot be loaded with {', '.join(names)}: {reason}. {_fix(requested[0])}"
        ) from None
    lost = [name for name in requested if name not in session.get_providers()]
    if lost:
        reason = " ".join([_loading_error(lost[0]), *printed.split()])
        raise DeviceError(f"ONNX Runtime did not load {lost[0]}: {reason}. {_fix(lost[0])}")
    return session


def _fix(provider: str) -> str:
    build = f"Install the GPU build and its libraries with: {gpu_command()} (streamkit doctor shows what is installed)"
    if provider != PROVIDERS["tensorrt"]:
        return build
    return (
        f"{build}. TensorRT's libraries are not among them: install the release of TensorRT that this ONNX Runtime is "
        "built for and put its folder on LD_LIBRARY_PATH, or use engine: auto"
    )


def _loading_error(provider: str) -> str:
    """Return why a provider is missing: ONNX Runtime only logs it; the dynamic loader names the missing library."""
    import onnxruntime as ort

    kind = provider.removesuffix("ExecutionProvider").lower()
    library = Path(ort.__file__).parent / "capi" / f"libonnxruntime_providers_{kind}.so"
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return "its library loads, but it found no usable driver or GPU"


def nodes_by_provider(session: Any) -> dict[str, int]:
    """Return how many of a GPU session's nodes each provider runs; empty for a CPU session."""
    counts: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info() if session.get_providers()[0] != PROVIDERS["cpu"] else ():
        counts[part.ep_name] += len(part.get_nodes())
    return dict(counts)
