"""What happens in the first seconds of many paced cameras: a row per tenth of a second, and every slow call.

usage: python benchmarks/startup.py CLIP --sources 100 [--model CARD | --data FOLDER] [--device cuda] [--seconds 20]
           [--set NAME=VALUE ...] [--json FILE]

Each row of the table is a tenth of a second since the sources started. `lock ms` is how late a thread that sleeps 2 ms
woke because it could not get the GIL. `stage` is the longest call in progress at the end of the tenth.
Rows without drops, stalls or growth are omitted (`--all` prints them). Below the table: calls that took more than 20
ms, and the stacks of all threads whenever the lock or a stage was held for more than 80 ms.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TICK_S = 0.002
_ROW_S = 0.1
_LONG_S = 0.02
_STALL_S = 0.08
_WATCHED = (
    "streamkit.media.surfaces:SurfacePool._allocate",
    "streamkit.media.nv_sessions:_create",
    "streamkit.media.nv_sessions:release",
    "streamkit.media.nv_decoder:NvDecoder._inspect_keyframe",
    "streamkit.media.nv_decoder:NvDecoder._run",
    "streamkit.media.demux:Demuxer.__init__",
    "streamkit.models.io_binding:IoBinding.__del__",
    "streamkit.models.io_binding:IoBinding.drain",
    "streamkit.models.io_binding:IoBinding._run",
    "streamkit.models.session:Session.run",
    "streamkit.models.session:Session.warm",
    "streamkit.models.session:Session.__init__",
    "streamkit.stages.inference.infer:Infer.process",
    "streamkit.stages.inference.postprocess:Postprocess.process",
    "streamkit.ops.preprocess_cuda:fill",
    "streamkit.ops.preprocess_cuda:_Staging.__init__",
    "streamkit.ops.cuda.load:_module",
    "streamkit.io.line_file:LineFile.flush",
    "streamkit.io.line_file:LineFile.open",
    "streamkit.runtime.execution.device:CudaLane.release",
    "streamkit.runtime.execution.device:HostLane.receive",
    "streamkit.runtime.pipeline:PipelineRun.report",
    "streamkit.runtime.observe.nvml:Nvml.use",
)


class Log:
    """Slow calls and garbage collections, with their times since the start."""

    def __init__(self) -> None:
        self.start_s = time.monotonic()
        self.calls: list[tuple[float, float, str, str]] = []
        self.total: Counter[str] = Counter()
        self.spent_s: dict[str, float] = defaultdict(float)
        self.stacks: list[tuple[float, str, dict[str, int]]] = []
        self._collecting_s = 0.0

    def at(self, now_s: float) -> float:
        return round(now_s - self.start_s, 3)

    def add(self, name: str, start_s: float, took_s: float) -> None:
        self.total[name] += 1
        self.spent_s[name] += took_s
        if took_s >= _LONG_S:
            self.calls.append((self.at(start_s), round(took_s * 1e3, 1), name, threading.current_thread().name))

    def watch(self, place: str) -> None:
        """Time every call of `module:name`."""
        module, _, names = place.partition(":")
        try:
            owner: Any = __import__(module, fromlist=["_"])
            *path, last = names.split(".")
            for part in path:
                owner = getattr(owner, part)
            call = getattr(owner, last)
        except (ImportError, AttributeError) as error:
            print(f"not watched: {place}: {error}", file=sys.stderr)
            return

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start_s = time.monotonic()
            try:
                return call(*args, **kwargs)
            finally:
                self.add(names, start_s, time.monotonic() - start_s)

        setattr(owner, last, timed)

    def collected(self, phase: str, info: dict[str, int]) -> None:
        """Log a garbage collection; a callback of `gc.callbacks`."""
        now_s = time.monotonic()
        if phase == "start":
            self._collecting_s = now_s
        else:
            self.add(f"garbage collection {info['generation']}", self._collecting_s, now_s - self._collecting_s)

    def stack(self, why: str) -> None:
        """Log the stacks of all threads, equal stacks counted together."""
        frames = sys._current_frames()
        counts = Counter[str]()
        for thread in threading.enumerate():
            if thread.ident in frames and thread is not threading.current_thread():
                last = traceback.extract_stack(frames[thread.ident])[-3:]
                where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(last))
                counts[f"{thread.name.partition('/')[0]}: {where}"] += 1
        self.stacks.append((self.at(time.monotonic()), why, dict(counts.most_common(12))))


class Watch:
    """Samples every 2 ms, and adds a row every tenth of a second."""

    def __init__(self, pipeline: Any, log: Log, device: Any) -> None:
        self.pipeline = pipeline
        self.log = log
        self.rows = list[dict[str, Any]]()
        self._over = threading.Event()
        self._before: Counter[str] = Counter()
        self._latency: Any = None
        self._pool: Callable[[], float] = lambda: 0.0
        if device.kind == "cuda":
            pool = device.xp.get_default_memory_pool()
            self._pool = lambda: pool.total_bytes() / 1e6
        from streamkit.media.surfaces import shared_pool

        self._surfaces = shared_pool(device)

    def __call__(self) -> None:
        try:
            self._look()
        except Exception:
            traceback.print_exc()

    def _look(self) -> None:
        late_s = worst_s = 0.0
        shown_s = logged_s = 0.0
        worst = ""
        while not self._over.is_set():
            tick_s = time.monotonic()
            time.sleep(_TICK_S)
            now_s = time.monotonic()
            late_s = max(late_s, now_s - tick_s - _TICK_S)
            for runner in list(self.pipeline._runners):
                call = runner.call
                if call is not None and now_s - call[0] > worst_s:
                    worst_s = now_s - call[0]
                    worst = runner.node.id
            stalled = now_s - tick_s - _TICK_S > _STALL_S or worst_s > _STALL_S
            if stalled and now_s - logged_s > 0.25 and len(self.log.stacks) < 60:
                logged_s = now_s
                self.log.stack(f"lock {late_s * 1e3:.0f} ms, {worst or 'no stage'} {worst_s * 1e3:.0f} ms")
            if now_s - shown_s >= _ROW_S:
                self.rows.append(self._row(now_s, late_s, worst, worst_s))
                shown_s = now_s
                late_s = 0.0
                worst_s = 0.0
                worst = ""

    def stop(self) -> None:
        self._over.set()

    def _row(self, now_s: float, late_s: float, worst: str, worst_s: float) -> dict[str, Any]:
        from streamkit.core.counters import Counters

        pipeline = self.pipeline
        states = self.pipeline.states.values()
        counts: Counter[str] = Counter()
        for state in states:
            counts.update(Counters.total([state.counters, state.drops]))
            counts["in"] += state.frames
            counts["out"] += state.out
        for runner in list(pipeline._runners):
            counts.update(Counters.total([runner.counters]))
        counts["surfaces"] = sum(map(len, self._surfaces._buffers.values()))
        new = {
            name: n - self._before[name]
            for name, n in counts.items()
            if n != self._before[name] and not name.startswith("boxes removed")
        }
        self._before = counts
        return {
            "at_s": self.log.at(now_s),
            "lock_ms": round(late_s * 1e3, 1),
            "stage": worst,
            "stage_ms": round(worst_s * 1e3, 1),
            "p99_ms": self._p99(),
            "begun": sum(s.frames > 0 for s in states),
            "waiting": pipeline._batcher.waiting,
            "transit_ms": round(pipeline._batcher._transit_s * 1e3, 1),
            "pool_mb": round(self._pool()),
            "new": new,
        }

    def _p99(self) -> float:
        from streamkit.runtime.execution.meters import Histogram

        busiest = max(self.pipeline.latency.values(), key=lambda histogram: int(histogram.counts.sum()), default=None)
        if busiest is None:
            return 0.0
        counts = busiest.counts.copy()
        recent = Histogram()
        recent.counts = counts if self._latency is None else counts - self._latency
        self._latency = counts
        return recent.summary()["p99_ms"] if recent.counts.any() else 0.0


def plan(args: argparse.Namespace, folder: Path) -> Path:
    """Write the pipeline that `bench gpu --realtime` runs."""
    from streamkit.bench.inputs import lengthen, network

    clip = folder / f"clip{args.clip.suffix}"
    lengthen(args.clip, clip, args.frames)
    stages: dict[str, Any] = {}
    if args.model or args.data:
        stages["detect"] = {"model": network(args.model, args.data, folder, args.dtype)[0]}
    stages["jsonl"] = {"path": str(folder / "out" / "{source}.jsonl")}
    source = {"uri": str(clip), "loop": True, "pace": args.fps}
    pipeline = {"sources": {f"s{n:03d}": source for n in range(args.sources)}, "stages": stages}
    path = folder / "pipeline.yaml"
    path.write_text(json.dumps(pipeline), encoding="utf-8")
    return path


def show(log: Log, watch: Watch, everything: bool) -> None:
    print("   at s  lock ms  stage (ms)            p99 ms  begun  waiting  pool MB  new")
    for row in watch.rows:
        new = {name: n for name, n in row["new"].items() if name not in ("in", "out")}
        if everything or new or row["lock_ms"] > 20 or row["stage_ms"] > 50 or row["p99_ms"] > 150:
            stage = f"{row['stage']} ({row['stage_ms']:.0f})"
            rest = ", ".join(f"{name} +{n}" for name, n in row["new"].items())
            print(
                f"{row['at_s']:7.2f} {row['lock_ms']:8.1f}  {stage:20} {row['p99_ms']:7.0f} {row['begun']:6} "
                f"{row['waiting']:8} {row['pool_mb']:8}  {rest}"
            )
    print("\ncalls over 20 ms: at s, ms, name, thread")
    for at_s, took_ms, name, thread in sorted(log.calls):
        print(f"{at_s:8.3f} {took_ms:8.1f}  {name}  [{thread}]")
    print("\nall calls: number, seconds, name")
    for name, spent_s in sorted(log.spent_s.items(), key=lambda entry: -entry[1]):
        print(f"{log.total[name]:8} {spent_s:8.2f}  {name}")
    print("\nstacks of the threads in stalls")
    for at_s, why, counts in log.stacks:
        print(f"{at_s:8.3f}  {why}")
        for where, n in counts.items():
            print(f"{'':10}{n:4} x {where}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clip", type=Path)
    parser.add_argument("--sources", type=int, default=100)
    parser.add_argument("--fps", type=float, default=30)
    parser.add_argument("--model")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--dtype", default="f16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=20.0, help="from the first source's start")
    parser.add_argument("--frames", type=int, default=6000, help="of the clip, at least")
    parser.add_argument("--set", dest="set_", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--no-collection", action="store_true", help="with the garbage collector turned off")
    parser.add_argument("--queue", type=int, help="frames of a live source that may wait; 4 by default")
    parser.add_argument("--all", action="store_true", help="print all rows")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read
    from streamkit.runtime.execution.device import choose
    from streamkit.runtime.pipeline import PipelineRun

    if args.no_collection:
        gc.disable()
    if args.queue:
        import streamkit.runtime.ingest.batcher

        streamkit.runtime.ingest.batcher._LIVE_QUEUE = args.queue
    log = Log()
    with tempfile.TemporaryDirectory(prefix="streamkit-startup-") as name:
        path = plan(args, Path(name))
        set_ = dict(setting.split("=", 1) for setting in args.set_)
        device = choose(args.device)
        pipeline = PipelineRun(build(read(path, set_=set_, device=args.device)), device)
        for place in _WATCHED:
            log.watch(place)
        gc.callbacks.append(log.collected)
        watch = Watch(pipeline, log, device)
        threading.Thread(target=watch, name="watch", daemon=True).start()

        def end() -> None:
            while not pipeline.ready:
                time.sleep(0.01)
            print(f"stages open after {time.monotonic() - log.start_s:.1f} s")
            log.start_s = time.monotonic()
            time.sleep(args.seconds)
            pipeline.stop()

        threading.Thread(target=end, name="end", daemon=True).start()
        pipeline.run()
        watch.stop()
        show(log, watch, args.all)
        if args.json:
            figures = {
                "rows": watch.rows,
                "calls": sorted(log.calls),
                "stacks": log.stacks,
                "counts": pipeline.counts(),
            }
            args.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
        print("\n", pipeline.counts())
    return 0


if __name__ == "__main__":
    sys.exit(main())
