# SPDX-License-Identifier: Apache-2.0
"""Speeds and limits of a GPU and its host that the number of processes follows from.

Runs measure some of them; they are kept in the user's folder, a file for each, so that processes which measure at the
same time never mix theirs. The others, and those that were not measured yet, are first guesses.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from streamkit.core.errors import OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file

logger = logging.getLogger(__name__)

_FORMAT = 1
_SESSION_RUNS = 2
"""Number of runs in which the driver must refuse a session at the same count until the count is taken as the limit: in
one of them, another program may hold sessions."""

CODECS = ("h264", "hevc")
GUESSED_CARD = "NVIDIA H200"
GUESS_SOURCE = "H200 with 16 CPU cores, 21 to 27 November 2026, docs/figures/2026-11-27-h200.json"
SESSIONS = "sessions"


@dataclass(frozen=True, slots=True)
class GpuFigure:
    """A speed or limit.

    Attributes:
        amount: in the unit that `MEANINGS` gives.
        measured_on: the date, such as `2026-11-27`; empty for a first guess.
        runs: number of runs that measured the same amount in turn.
    """

    amount: float
    measured_on: str = ""
    runs: int = 1

    @property
    def origin(self) -> str:
        """Where it comes from, a text for the user."""
        return f"measured here on {self.measured_on}" if self.measured_on else "first guess, of an H200"


MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "lock_us_h264": "µs of lock time for each H.264 frame",
        "lock_us_hevc": "µs of lock time for each HEVC frame",
        "decoders_fps_h264": "H.264 frames/s of all decoders, 1080p",
        "decoders_fps_hevc": "HEVC frames/s of all decoders, 1080p",
        "decoder_fps_h264": "H.264 frames/s of one decoder, 1080p",
        "decoder_fps_hevc": "HEVC frames/s of one decoder, 1080p",
        "live_lock": "of the time a process with cameras may hold the lock",
        "files_lock": "of the time a process with files may hold the lock",
        "network_lock": "of the time it may where the networks are slower than the decoders",
        "queue_share": "of a network's time on the GPU from which on queueing it takes a second process",
        "decoders_busy": "of the decoders from which cameras get one process more",
        SESSIONS: "NVDEC sessions at once",
    }
)

# Measured with `bench gpu`, YOLOX-nano f16, 1080p, `detect` and `jsonl`; see docs/figures/gpu.md.
FIRST_GUESSES: Mapping[str, GpuFigure] = MappingProxyType(
    {
        # the lock is free 44 % of the time at 5,000 H.264 frames/s, and held 90 % of it at 6,000 to 7,000 of HEVC
        "lock_us_h264": GpuFigure(112.0),
        "lock_us_hevc": GpuFigure(138.0),
        "decoders_fps_h264": GpuFigure(5000.0),
        "decoders_fps_hevc": GpuFigure(9000.0),
        # one file uses one decoder, unless `decoders` is set
        "decoder_fps_h264": GpuFigure(700.0),
        "decoder_fps_hevc": GpuFigure(1350.0),
        # Cameras need the lower share for their latency: 100 H.264 cameras at 30 frames/s in one process hold the lock
        # 34 % of the time by the figures above, and dropped frames in one of two runs. 200 HEVC cameras in three
        # processes, 28 % each, dropped none on one host and 6 % on another with slower cores.
        "live_lock": GpuFigure(0.27),
        # 14 H.264 files in one process hold it 56 % of the time; they reached 0.994 of the decoders on one host and
        # 0.933 on another, where two processes reached 0.99.
        "files_lock": GpuFigure(0.50),
        # For files where the networks are slower than the decoders. Threads then wait for the GPU with the lock held,
        # two to three times as long a frame. In the fused engine, YOLO11m ran at 0.86 of its rate in one process, and
        # at 0.98 in two and three; YOLOv8m at 0.97 and 0.99. In ONNX Runtime (f16, 1,350 frames/s), YOLOv8m ran at
        # 0.98 in one process and at 0.90 in two.
        "network_lock": GpuFigure(0.35),
        # D-FINE-L and RT-DETR R50 are queued in 0.42 of the time that the GPU takes. In one process they ran at 0.86 to
        # 0.96 of their rates; D-FINE-L in three processes at more than the rate that one alone has. YOLO11m: 0.11.
        "queue_share": GpuFigure(0.35),
        # A packet that comes late from a busy process waits at the decoder as well. With 158 H.264 cameras, a tracker
        # and two classifiers, which need 0.95 of the decoders, three processes dropped 23 frames of 47,000 with a p95
        # of 109 ms, four on two other hosts none with 58 and 59 ms.
        "decoders_busy": GpuFigure(0.90),
        # 288 sources, `load-hevc`: the driver refused the 287th with error 2 of `cuvidCreateDecoder`
        SESSIONS: GpuFigure(286),
    }
)
MEASURED_BY_RUNS = (*(f"{kind}_{codec}" for kind in ("lock_us", "decoders_fps") for codec in CODECS), SESSIONS)
"""What a run measures, see `runtime.observe.gpu_lessons`; the others take several runs that are compared."""

_reported: set[Path] = set()  # damaged files


def read_figures(gpu: str) -> dict[str, GpuFigure]:
    """Return the figures of a GPU by name: those measured there, and first guesses.

    Args:
        gpu: the GPU with its driver and versions, see `decoding_versions`; without, all are first guesses.
    """
    figures = dict(FIRST_GUESSES)
    for name in MEASURED_BY_RUNS if gpu else ():
        measured = _read(figure_file(gpu, name))
        if measured is not None:
            figures[name] = measured
    return figures


def figure_file(gpu: str, name: str) -> Path:
    """Return the file for a figure that was measured on a GPU."""
    key = json.dumps([_FORMAT, gpu])
    return user_cache("gpu", f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")


def store_figure(gpu: str, name: str, amount: float) -> None:
    """Store a measured figure for later runs; log a file that cannot be written.

    The highest decoder rate stays: other programs make the decoders seem slower. A number of sessions is not replaced
    by a lower number once two runs have measured it.
    """
    file = figure_file(gpu, name)
    earlier = _read(file)
    runs = 1
    if earlier is not None:
        if name.startswith("decoders_fps") and earlier.amount >= amount:
            return
        if name == SESSIONS and earlier.amount > amount and earlier.runs >= _SESSION_RUNS:
            return
        runs = earlier.runs + 1 if earlier.amount == amount else 1
    figure = GpuFigure(amount, datetime.datetime.now().date().isoformat(), runs)
    try:
        write_cache_file(file, json.dumps({"name": name, "gpu": gpu, **asdict(figure)}).encode() + b"\n")
    except OutputError as error:
        logger.warning(f"the figure that this run measured on the GPU is not stored: {error}")


def describe_figure(name: str, figure: GpuFigure) -> str:
    """Return a figure with its meaning and origin, a text for the user."""
    text = f"{figure.amount:g} {MEANINGS[name]}, {figure.origin}"
    uncertain = name == SESSIONS and figure.measured_on and figure.runs < _SESSION_RUNS
    return f"{text} in one run: the next that is refused at this count makes it the limit" if uncertain else text


def session_limit(gpu: str) -> int | None:
    """Return how many NVDEC sessions a GPU opens at once, for all processes together; None if it is not certain.

    The driver does not say. Another GPU than the one of the first guess has no limit until two runs found the same.
    """
    measured = _read(figure_file(gpu, SESSIONS)) if gpu else None
    if measured is not None and measured.runs >= _SESSION_RUNS:
        return int(measured.amount)
    return int(FIRST_GUESSES[SESSIONS].amount) if gpu.partition(",")[0] == GUESSED_CARD else None


def _read(file: Path) -> GpuFigure | None:
    try:
        fields = json.loads(file.read_bytes())
        figure = GpuFigure(float(fields["amount"]), str(fields["measured_on"]), int(fields["runs"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        if file not in _reported:
            logger.warning(f"{file} cannot be read ({error}): a first guess is used until a run measures it again")
            _reported.add(file)
        return None
    return figure if 0 < figure.amount < float("inf") and figure.measured_on else None
