# SPDX-License-Identifier: Apache-2.0
"""`streamkit bench gpu`: the speed of each part of a pipeline alone, of whole pipelines, and the bottleneck.

The parts are measured in one process (`limits.py`), each whole pipeline in its own process (`trial.py`), for its own
start-up time and memory. Every source reads the same file: the clip's packets repeated, in memory.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from streamkit.bench import limits, trial
from streamkit.bench.child import results
from streamkit.bench.decoders import decoders_fps
from streamkit.bench.inputs import lengthen, network, scratch_folder
from streamkit.bench.table import HEAD, Measurement, best, binding, fps_of, growth_per_source, summary_line
from streamkit.config.checks.stages import check_networks
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.core.yaml_tree import load_file
from streamkit.io.outputs import ReportFile
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.device import choose

# time limit of all measurements by default, and with --quick
WHOLE_S = 360.0
QUICK_S = 60.0
_PARTS_SHARE = 0.4  # share of the time limit
_REALTIME_FPS = 30
_EXTRA = "whole + stages"
_DECODERS = 7


@dataclass(slots=True)
class GpuBenchOptions:
    """What to measure.

    Attributes:
        clips: a video for each codec's name.
        data: the folder with `models/`, for the network if `model` is None.
        model: a card.
        dtype: dtype of the data folder's network.
        device: `cuda` or `cuda:N`; `cpu` measures the same on the CPU.
        batches: batch sizes.
        sources: numbers of sources.
        seconds: duration of each measurement.
        max_s: time limit for all measurements, in seconds; what does not fit is skipped or stopped, and listed.
        realtime: numbers of sources that play at 30 frames per second; measured before whole pipelines.
        grid: measure every batch size with every number of sources, instead of one row and one column.
        processes: numbers of processes that share the device, for whole pipelines and paced sources; `auto` is the
            runtime's own choice. All runs use the first one; the others are added at its best batch size.
        frames: minimum length of the file that sources read.
        extra_stages: stages as in a YAML, to add between `detect` and `jsonl` in one more whole run and in paced runs.
        set_: values of the pipeline to replace, such as `stages.detect.precision`.
    """

    clips: dict[str, Path]
    data: Path | None = None
    model: str | None = None
    dtype: Literal["f16", "f32"] = "f16"
    device: str = "cuda"
    batches: tuple[int, ...] = (8, 32, 64, 128)
    sources: tuple[int, ...] = (1, 7, 14, 32)
    seconds: float = 3.0
    max_s: float = WHOLE_S
    realtime: tuple[int, ...] = ()
    grid: bool = False
    processes: tuple[int | Literal["auto"], ...] = ("auto",)
    frames: int = 6000
    extra_stages: dict[str, Any] = field(default_factory=dict)
    set_: dict[str, str] = field(default_factory=dict)

    def quick(self) -> GpuBenchOptions:
        """Reduce to one batch size and one number of sources; returns self."""
        self.batches = (max((n for n in self.batches if n <= 64), default=min(self.batches)),)
        self.sources = (min(self.sources, key=lambda n: abs(n - 14)),)
        self.seconds = min(self.seconds, 1.5)
        self.frames = min(self.frames, 3000)
        return self


@dataclass
class GpuBenchmark:
    """Runs the measurements, and prints each one.

    Args:
        options: what to measure.
        folder: where to write clips, cards and records.
        echo: receives lines of text.
        keep: called whenever there is a new result.
    """

    options: GpuBenchOptions
    folder: Path
    echo: Callable[[str], None]
    keep: Callable[[GpuBenchmark], None] = lambda _benchmark: None
    rows: list[Measurement] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    clips: dict[str, Path] = field(default_factory=dict)
    packet_bytes: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = self.options
        self._started_s = time.monotonic()
        self._out = self.folder / "out"
        self._until_s = self._started_s + options.max_s  # when the time limit is reached
        self.model, self.network = network(options.model, options.data, self.folder, options.dtype)

    def all(self) -> None:
        """Run all measurements that fit into the time limit."""
        for codec, clip in self.options.clips.items():
            self.clips[codec] = self.folder / f"{codec}{clip.suffix}"
            count = lengthen(clip, self.clips[codec], self.options.frames)
            self.packet_bytes[codec] = round(self.clips[codec].stat().st_size / count, 1)
        packets = ", ".join(f"{size:,.0f} bytes per frame in {codec}" for codec, size in self.packet_bytes.items())
        path = self._pipeline(next(iter(self.clips)), 1)  # problems are reported before anything runs
        check_networks(build(read(path, set_=self.options.set_, device=self.options.device)))
        self.echo(f"{self.network}; packets {packets}")
        self.echo(HEAD)
        self.measure_parts()
        options = self.options
        # requested explicitly: at the time limit, whole pipelines are skipped first
        for processes, codec, sources in product(options.processes, self.clips, options.realtime):
            self.measure_whole(codec, sources, 0, "paced", processes=processes)
        for batch, codec in product(options.batches, self.clips):
            self.measure_whole(codec, self._base(codec), batch)
        for sources, codec in product(options.sources, self.clips):
            if sources != self._base(codec):
                for batch in options.batches if options.grid else (self._best_batch(codec),):
                    self.measure_whole(codec, sources, batch)
        for codec in self.clips:
            at_best = self._base(codec), self._best_batch(codec)
            for decoders in (1, _DECODERS):
                self.measure_whole(codec, 1, self._best_batch(codec), f"one file, {decoders} decoders", decoders)
            for what in ("decode + preprocess", *([_EXTRA] if options.extra_stages else [])):
                self.measure_whole(codec, *at_best, what)
            for processes in options.processes[1:]:
                self.measure_whole(codec, *at_best, processes=processes)

    # ------------------------------------------------------------------------------------------------------- parts

    def measure_parts(self) -> None:
        """Measure each part alone."""
        options = self.options
        spec = limits.LimitsSpec(
            {codec: str(clip) for codec, clip in self.clips.items()},
            list(options.sources),
            list(options.batches),
            str(self._pipeline(next(iter(self.clips)), 1)),
            options.set_,
            options.device,
            options.seconds,
        )
        with closing(results(spec, self._until_s)) as measured:
            try:
                for row_fields in measured:
                    if "error" in row_fields:
                        raise StreamkitError(row_fields["error"])
                    if "machine" in row_fields:
                        self.machine = row_fields["machine"]
                        continue
                    row = Measurement(**row_fields)
                    self._add(row)
                    enough = row.what == "postprocess" and row.batch != options.batches[-1]
                    if enough and time.monotonic() > self._started_s + _PARTS_SHARE * options.max_s:
                        self._leave_out(f"parts alone with batches over {row.batch}")
                        return
            except TimeoutError:
                self._leave_out("parts alone that were not measured before the time limit")

    # ---------------------------------------------------------------------------------------------------- the whole

    def measure_whole(
        self,
        codec: str,
        sources: int,
        batch: int,
        what: str = "whole",
        decoders: int | None = None,
        *,
        processes: int | Literal["auto"] | None = None,
    ) -> None:
        """Measure one run in its own processes; skip or stop it at the time limit."""
        processes = processes or self.options.processes[0]
        options = self.options
        title = f"{what}, {codec}, {sources} sources, batch {batch or 'by default'}"
        expected_s = self._last.get(what) or self._last.get("whole", 0.0)
        if time.monotonic() + max(expected_s, options.seconds) > self._until_s:
            self._leave_out(title)
            return
        started_s = time.monotonic()
        stages = ("detect", *(options.extra_stages if what in (_EXTRA, "paced") else ()), "jsonl")
        if what == "decode + preprocess":
            stages = ("preprocess",)
        pace = _REALTIME_FPS if what == "paced" else None
        path = self._pipeline(codec, sources, batch, stages=stages, pace=pace, decoders=decoders)
        set_ = {**(options.set_ if "detect" in stages else {}), "device.processes": str(processes)}
        spec = trial.TrialSpec(str(path), set_, options.device, seconds=options.seconds)
        if pace is not None:
            spec.seconds = max(5.0, spec.seconds)
            spec.warmup_s = 2.0
            spec.start_s = 60.0 + sources / 4
        try:
            figures = trial.measure(spec, self._until_s)
        except TimeoutError:
            shutil.rmtree(self._out, ignore_errors=True)
            self._leave_out(f"{title}: stopped at the time limit")
            return
        if "jsonl" in stages and not figures.error:
            self._check_records(figures)
        ran = processes if figures.error and processes != "auto" else figures.processes
        row = Measurement(what, figures.fps, codec, sources, batch, found=figures, processes=ran)
        if not figures.error:
            if what == "whole":
                self._decode_in_processes(codec, sources, figures.processes)
            decoder = None if decoders else fps_of(self.rows, what="decode", codec=codec, sources=sources)
            network = fps_of(self.rows, what="infer", batch=batch) if "detect" in stages else None
            row.uses = binding(figures, cores(), decoder=decoder, network=network)
            row.of_limit = self._of_limit(codec, figures.fps) if "detect" in stages and pace is None else None
        self._add(row)
        self._last[what] = time.monotonic() - started_s

    def _decode_in_processes(self, codec: str, sources: int, processes: int) -> None:
        """Measure decoding alone in as many processes as a run used: Python's lock may bind a single one."""
        measured = fps_of(self.rows, what="decode", codec=codec, sources=sources, processes=processes)
        if measured is not None:
            return
        try:
            fps = decoders_fps(
                self.clips[codec], self.options.device, sources, self.options.seconds, processes, self._until_s
            )
        except TimeoutError:
            self._leave_out(f"decode, {codec}, {sources} sources, in {processes} processes")
            return
        self._add(Measurement("decode", round(fps, 1), codec, sources, processes=processes))

    def _pipeline(
        self,
        codec: str,
        sources: int,
        batch: int = 0,
        *,
        stages: tuple[str, ...] = ("detect", "jsonl"),
        pace: int | None = None,
        decoders: int | None = None,
    ) -> Path:
        """Write the pipeline of a run; return its path."""
        options = {"uri": str(self.clips[codec]), "loop": True, "pace": pace, "decoders": decoders}
        source = {name: value for name, value in options.items() if value is not None}
        stage_options = {
            "preprocess": {"model": self.model},
            "detect": {"model": self.model},
            "jsonl": {"path": str(self._out / "{source}.jsonl")},
            **self.options.extra_stages,
        }
        plan: dict[str, Any] = {
            "sources": {f"s{number:03d}": source for number in range(sources)},
            "stages": {name: stage_options[name] for name in stages},
        }
        if batch:
            plan["batch"] = {"size": batch}
        path = self.folder / "pipeline.yaml"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return path

    def _check_records(self, figures: trial.TrialResult) -> None:
        """Check that every frame has its record, then delete the records."""
        written = sum(path.read_bytes().count(b"\n") for path in self._out.glob("*.jsonl"))
        shutil.rmtree(self._out, ignore_errors=True)
        if written != figures.frames_in_all:
            figures.error = f"{written} records of {figures.frames_in_all} frames were written"

    # ------------------------------------------------------------------------------------------------- what was found

    def _base(self, codec: str) -> int:
        """The smallest number of sources whose decoding is within 3 % of the fastest."""
        decoded = [row for row in self.rows if row.what == "decode" and row.codec == codec]
        top = max((row.fps for row in decoded), default=0.0)
        return min((row.sources for row in decoded if row.fps >= 0.97 * top), default=self.options.sources[0])

    def _best_batch(self, codec: str) -> int:
        fastest = best(self.rows, what="whole", codec=codec)
        return fastest.batch if fastest and fastest.fps else self.options.batches[0]

    def _of_limit(self, codec: str, fps: float) -> float | None:
        """A speed relative to the lesser of decoding alone and inference alone, each at its best."""
        decode = fps_of(self.rows, what="decode", codec=codec)
        infer = fps_of(self.rows, what="infer")
        return round(fps / min(decode, infer), 4) if decode and infer else None

    def summary(self) -> dict[str, dict[str, Any]]:
        """The main results, by codec."""
        by_codec = {}
        for codec in self.clips:
            whole = best(self.rows, what="whole", codec=codec)
            if whole is None or not whole.fps or whole.found is None:
                continue
            like = {"what": "whole", "codec": codec, "batch": whole.batch, "processes": whole.processes}
            by_codec[codec] = {
                "whole_fps": whole.fps,
                "sources": whole.sources,
                "batch": whole.batch,
                "processes": whole.processes,
                "decode_fps": fps_of(self.rows, what="decode", codec=codec),
                "infer_fps": fps_of(self.rows, what="infer"),
                "of_limit": whole.of_limit,
                "binds": next(iter(whole.uses), None),
                "uses": whole.uses,
                "lock_free": whole.found.lock_free,
                "to_device_bytes": whole.found.to_device,
                "to_host_bytes": whole.found.to_host,
                "packet_bytes": self.packet_bytes[codec],
                "start_s": whole.found.start_s,
                "device_mb_a_source": growth_per_source(self.rows, "device_mb", **like),
                "host_mb_a_source": growth_per_source(self.rows, "host_mb", **like),
            }
        return by_codec

    def _add(self, row: Measurement) -> None:
        self.rows.append(row)
        self.echo(str(row))
        self.keep(self)

    def _leave_out(self, what: str) -> None:
        self.left_out.append(what)
        self.echo(f"skipped: {what}")
        self.keep(self)

    def report(self, *, complete: bool) -> dict[str, Any]:
        """All results so far, as values for JSON; paths as `Path`."""
        return {
            "schema": "streamkit-bench/1",
            "complete": complete,
            "machine": self.machine,
            "network": self.network,
            "settings": asdict(self.options),
            "summary": self.summary(),
            "rows": [asdict(row) for row in self.rows],
            "left_out": list(self.left_out),
        }


def stages_of(path: Path) -> dict[str, Any]:
    """All stages of a YAML; paths and models in it are relative to the working folder. Raises ConfigError."""
    node, problems = load_file(path)
    if problems:
        raise ConfigError(problems)
    stages = node.plain().get("stages") if isinstance(node.plain(), dict) else None
    if not isinstance(stages, dict) or not stages or {"detect", "jsonl"} & stages.keys():
        raise ConfigError(f"{path} must have stages, but not detect and jsonl, which the bench adds")
    return {name: stage_options or {} for name, stage_options in stages.items()}


def bench(options: GpuBenchOptions, out: Path | None, echo: Callable[[str], None]) -> int:
    """Measure this machine's GPU.

    Args:
        options: what to measure.
        out: a JSON file for all results, rewritten with each row, so that an interrupted run keeps its results;
            `complete` is true after the last one.
        echo: receives lines of text.

    Returns:
        0, or 1 if a run failed.

    Raises:
        DeviceError: there is no such GPU; names what is missing.
        ConfigError: clips or the network are missing, or the pipeline is invalid.
    """
    choose(options.device)
    write = None if out is None else ReportFile(out)

    def keep(benchmark: GpuBenchmark, *, complete: bool = False) -> None:
        if write is not None:
            write(json.dumps(benchmark.report(complete=complete), indent=2, default=str) + "\n", last=complete)

    with scratch_folder() as name:
        benchmark = GpuBenchmark(options, Path(name), echo, keep)
        benchmark.all()
        for codec, codec_summary in benchmark.summary().items():
            echo(summary_line(codec, codec_summary))
        keep(benchmark, complete=True)
    return 1 if any(row.found is not None and row.found.error for row in benchmark.rows) else 0
