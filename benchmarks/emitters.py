"""Speed of emitters with their spools, and their cost per frame.

    python benchmarks/emitters.py [NAME ...] [--frames 4000] [--mqtt-batch 10]

Starts each broker that is installed here, on a free port. The columns, per emitter:

- records/s: object records through spool and broker, from the first frame to the last acknowledgement;
- caught up/s: records that waited in the spool for the broker, from when the broker is available;
- with live/s, live took: the same while 1,000 live records per second arrive, and how much longer the live ones take;
- alone us/frame, empty: CPU time of the stage's thread without a sender or other load, in batches of 64, for frames
  with ten objects and with none;
- beside jsonl: the same with ten objects if a `jsonl` before it has formatted the lines;
- sender: CPU time of the sender's thread, alone as well, in microseconds for each record of such a frame;
- stage us/frame: time of a frame with ten objects in the stage;
- cpu us/frame: CPU time of all threads for such a frame in a run with `jsonl` and the emitter, in excess of a run with
  `jsonl` alone; batches of 64 from four sources at full speed, ten times as many frames.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Batch, Detections, Device, Frame
from streamkit.core.records import batch_lines
from streamkit.core.stage import BatchStage, Collecting, Count, Registry, Source, default_registry, stage

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.broker_servers import BrokerServer
from support.brokers import PLACES

OBJECTS = 10
"""Objects on each frame."""

_FRAMES = 4000
_LABELS = ("car", "person", "bicycle")
_LIVE_FPS = 100
LIVE_PER_S = _LIVE_FPS * OBJECTS
"""Live records per second while spooled records are sent."""

_LOOK_S = 0.01
_BATCH = 64
_ROUNDS = 200
EMITTERS = tuple(name for name, place in PLACES.items() if place.measured)
_BROKERS: dict[str, type[BrokerServer]] = {
    name: server for name in EMITTERS if (server := PLACES[name].server) is not None
}


def add_stages(registry: Registry) -> None:
    """Add a source of frames without pixels, and a stage that finds ten objects on each."""
    with Collecting(registry):
        _define()


def _define() -> None:
    @stage("numbered_frames")
    class NumberedFrames(Source):
        """Frames without pixels, `rate` per second, or as fast as possible if it is 0; `uri` is ignored."""

        uri: str
        count: Count = 1
        rate: Count = 0

        def frames(self) -> Iterator[Frame]:
            name = self.context.id
            start_s = time.monotonic()
            for index in range(self.count):
                if self.rate and (ahead := start_s + index / self.rate - time.monotonic()) > 0:
                    time.sleep(ahead)
                yield Frame(name, index, index * 0.04, 640, 360)

    @stage("ten_objects", writes="detections")
    class TenObjects(BatchStage):
        """Ten objects on each frame, the same on all."""

        def process(self, batch: Batch) -> Batch:
            n = len(batch.frames) * OBJECTS
            place = np.arange(n, dtype=np.float32) % OBJECTS * 30
            batch.tables["detect"] = Detections(
                np.stack([place, place + 3.25, place + 20.5, place + 60], axis=1),
                np.full(n, 0.9123, np.float32),
                np.arange(n, dtype=np.int32) % len(_LABELS),
                batch_row=np.repeat(np.arange(len(batch.frames), dtype=np.int32), OBJECTS),
                labels=_LABELS,
            )
            return batch


def options_for(name: str, broker: BrokerServer | None, folder: Path, mqtt_batch: int = OBJECTS) -> dict[str, Any]:
    """The options of an emitter that sends to this broker, without `spool` and `send`."""
    port = 0 if broker is None else broker.port
    password = "" if broker is None else broker.password
    batch = {"batch": mqtt_batch} if name == "mqtt" else {}
    return {**PLACES[name].options_at(folder, port, password), **batch}


def run(sink: dict[str, Any], frames: int, rate: int = 0) -> tuple[dict[str, Any], float]:
    """Run frames through the graph into one sink, `rate` per second; returns the report and CPU seconds."""
    source = {"stage": "numbered_frames", "uri": "none", "count": frames, **({"rate": rate} if rate else {})}
    return _run({"sources": {"gate": source}}, {"out": sink})


def cpu_beside_jsonl(sink: dict[str, Any], frames: int, folder: Path) -> float:
    """CPU time of a sink after `jsonl`, in µs per frame: of all threads, in batches of 64 from four sources."""
    source = {"stage": "numbered_frames", "uri": "none", "count": frames // 4}
    input_config = {"batch": {"size": _BATCH, "max_wait": "30ms"}, "sources": {f"gate{n}": source for n in range(4)}}
    jsonl = {"jsonl": {"path": str(folder / "out.jsonl")}}
    _, base = _run(input_config, jsonl)
    _, used = _run(input_config, {**jsonl, "out": sink})
    return (used - base) / frames * 1e6


def _run(input_config: dict[str, Any], sinks: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Run a pipeline with these sinks; returns the report and CPU seconds."""
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.runtime.pipeline import PipelineRun

    registry = default_registry()
    add_stages(registry)
    text = json.dumps({"device": "cpu", **input_config, "stages": {"detect": {"stage": "ten_objects"}, **sinks}})
    pipeline = PipelineRun(build(read_text(text, registry=registry)), Device("cpu"))
    used = time.process_time()
    code = pipeline.run()
    used = time.process_time() - used
    if code:
        raise RuntimeError(f"the run must end well, got exit code {code}")
    return pipeline.report(code), used


def measure(name: str, folder: Path, frames: int = _FRAMES, mqtt_batch: int = OBJECTS) -> dict[str, float]:
    """Measure one emitter, as described above. Catching up is NaN if the emitter has no broker."""
    broker = _BROKERS[name](folder / "broker") if name in _BROKERS else None
    if broker is not None:
        broker.start()
        broker.make_room()
    spool = {"spool": {"path": str(folder / "spool")}}
    options = options_for(name, broker, folder, mqtt_batch)
    emitter = {"stage": name, **options, **spool}
    caught_up = caught_up_live = late = float("nan")
    try:
        if broker is not None:
            away = options_for(name, type(broker)(folder / "away"), folder)
            later = {**emitter, "send": "objects", **({"table": "late"} if name == "postgres" else {})}
            missed = {**later, **away, "timeout": "1s", "drain_timeout": "100ms"}
            left, _ = run(missed, frames)
            later_report, _ = run(later, 1)
            caught_up = left["counts"]["records left in the spool"] / later_report["seconds"]
            run(missed, frames)
            caught_up_live, late = _catch_up(later, frames)
        objects, _ = run({**emitter, "send": "objects"}, frames)
        sent = objects["counts"].get("records sent", 0)
        if sent != frames * OBJECTS:
            raise RuntimeError(f"{name}: {sent} of {frames * OBJECTS} records were sent: {objects['counts']}")
        table = {"table": "whole"} if name in ("sqlite", "postgres") else {}
        whole, _ = run({**emitter, **table, "send": "frames"}, frames)
        cpu_us = cpu_beside_jsonl({**emitter, **table, "send": "frames"}, 10 * frames, folder)
        alone_empty, _ = thread_times(name, options, folder, objects=False)
        alone, sender = thread_times(name, options, folder, sends=True)
        beside, _ = thread_times(name, options, folder, formatted=True)
    finally:
        if broker is not None:
            broker.kill()
    return {
        "records_per_s": sent / objects["seconds"],
        "caught_up_per_s": caught_up,
        "caught_up_live_per_s": caught_up_live,
        "live_took_longer": late,
        "alone_us_per_frame": alone,
        "alone_us_per_empty_frame": alone_empty,
        "beside_jsonl_us_per_frame": beside,
        "sender_us_per_record": sender,
        "stage_us_per_frame": whole["stages"]["out"]["seconds"] / frames * 1e6,
        "cpu_us_per_frame": cpu_us,
    }


def thread_times(
    name: str, options: dict[str, Any], folder: Path, objects: bool = True, formatted: bool = False, sends: bool = False
) -> tuple[float, float]:
    """CPU time of the stage's own thread and of its sender's, in µs per frame with `send: frames`.

    The stage makes and spools records; then the sender sends them.

    Args:
        name: the emitter.
        options: its options, without `spool` and `send`.
        folder: for its spool.
        objects: whether the frames have ten objects each, or none.
        formatted: whether a `jsonl` before it has formatted the lines.
        sends: whether to send; otherwise the second value is NaN.
    """
    from streamkit.core.stage import Context

    registry = default_registry()
    add_stages(registry)
    kind: Any = registry.get(name)
    sink = kind(**options, spool={"path": str(folder / f"alone-{objects}-{formatted}")})
    sink.context = Context(name)
    sink.open()
    frames = [Frame("gate", index, index * 0.04, 640, 360) for index in range(_BATCH)]
    batch = Batch(frames, np)
    if objects:
        find: Any = registry.get("ten_objects")
        batch = find().process(batch)
    took_s = []
    lines = batch_lines(batch)
    sender = float("nan")
    for _ in range(_ROUNDS):
        start_s = time.thread_time()
        sink.write_lines(frames, lines if formatted else batch_lines(batch))
        sink.flush()
        took_s.append(time.thread_time() - start_s)
    if sends:
        start_s = time.thread_time()
        sink.sender.run(lambda: not sink.queue.waiting)
        sender = (time.thread_time() - start_s) / _ROUNDS / _BATCH * 1e6
    sink.queue.close()
    return float(np.median(took_s)) / _BATCH * 1e6, sender


def _catch_up(sink: dict[str, Any], waiting: int) -> tuple[float, float]:
    """Send the records in the spool while live records arrive; return how many of the spooled ones are sent per second.

    Args:
        sink: the emitter's options.
        waiting: number of frames, with ten objects each, whose records are in the spool.

    Returns:
        And the time that the live frames took, relative to their paced time.
    """
    from streamkit.runtime.execution.future import Stopped, side_by_side

    ledger = Path(sink["spool"]["path"]) / "acknowledged"
    before = acknowledged(ledger)
    times: list[float] = []

    def watch(over: Stopped) -> None:
        while not over() and (now := acknowledged(ledger)) < before + waiting * OBJECTS:
            if now == before:
                times[:] = [time.monotonic()]
            time.sleep(_LOOK_S)
        times.append(time.monotonic())

    frames = max(waiting // 3, 1)
    with side_by_side(watch):
        live_report, _ = run(sink, frames, _LIVE_FPS)
    return waiting * OBJECTS / (times[-1] - times[0]), live_report["seconds"] / (frames / _LIVE_FPS)


def acknowledged(ledger: Path) -> int:
    """The number of the last record that has left a spool, from its file."""
    return int.from_bytes(ledger.read_bytes()[:8], "little")


def main() -> None:
    """Measure the named emitters, or all whose broker is installed."""
    parser = argparse.ArgumentParser(prog="python benchmarks/emitters.py")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(EMITTERS)}")
    parser.add_argument("--frames", type=int, default=_FRAMES)
    parser.add_argument("--mqtt-batch", type=int, default=OBJECTS, help="records in a message of mqtt")
    arguments = parser.parse_args()
    print(
        f"{'emitter':10} {'records/s':>10} {'caught up/s':>12} {'with live/s':>12} {'live took':>10} "
        f"{'alone us/frame':>15} {'empty':>6} {'beside jsonl':>13} {'sender':>7} {'stage us/frame':>15} "
        f"{'cpu us/frame':>13}"
    )
    for name in arguments.names or EMITTERS:
        why = _BROKERS[name].missing() if name in _BROKERS else None
        if why:
            print(f"{name:10} {why}")
            continue
        with tempfile.TemporaryDirectory(prefix="emitting-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)
            figures = measure(name, Path(folder), arguments.frames, arguments.mqtt_batch)
        print(
            f"{name:10} {figures['records_per_s']:10,.0f} {figures['caught_up_per_s']:12,.0f} "
            f"{figures['caught_up_live_per_s']:12,.0f} {figures['live_took_longer']:10.2f} "
            f"{figures['alone_us_per_frame']:15.1f} {figures['alone_us_per_empty_frame']:6.1f} "
            f"{figures['beside_jsonl_us_per_frame']:13.1f} {figures['sender_us_per_record']:7.1f} "
            f"{figures['stage_us_per_frame']:15.1f} "
            f"{figures['cpu_us_per_frame']:13.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
