"""How fast emitters are, with their spools, and what they cost a frame.

    python -m streamkit.bench.emitting [mqtt redis kafka sqlite postgres] [--frames 4000]

Each broker that is installed here is started for it, on a free port. Printed are the object records a second that go
through spool and broker, from the first frame to the last acknowledgement; those a second that had waited for the
broker, from when it is there; and what a frame with ten objects costs: in the stage, and in CPU time of all threads
more than with a sink that does nothing.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.bench.brokers import Broker, Kafka, Mosquitto, Postgres, Redis
from streamkit.data import Batch, Detections, Device, Frame
from streamkit.stage import BatchStage, Collecting, Count, Registry, Sink, Source, default_registry, stage

OBJECTS = 10
"""Objects on each frame."""

_FRAMES = 4000
_LABELS = ("car", "person", "bicycle")
_BROKERS: dict[str, type[Broker]] = {"mqtt": Mosquitto, "redis": Redis, "kafka": Kafka, "postgres": Postgres}
EMITTERS = ("mqtt", "redis", "kafka", "sqlite", "postgres")


def add_stages(registry: Registry) -> None:
    """Add a source of frames without pixels, a stage that finds ten objects on each, and a sink that does nothing."""
    with Collecting(registry):
        _define()


def _define() -> None:
    @stage("numbered_frames")
    class NumberedFrames(Source):
        """Frames without pixels.

        Options:
            uri: anything.
            count: how many frames.
            rate: frames a second; 0 as fast as they are taken.
        """

        uri: str
        count: Count = 1
        rate: Count = 0

        def frames(self) -> Iterator[Frame]:
            name, begun = self.context.id, time.monotonic()
            for index in range(self.count):
                if self.rate and (ahead := begun + index / self.rate - time.monotonic()) > 0:
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

    @stage("nothing")
    class Nothing(Sink):
        """Does nothing with a frame."""

        def write(self, frame: Frame) -> None:
            return


def options_for(name: str, broker: Broker | None, folder: Path) -> dict[str, Any]:
    """What the YAML says of an emitter that sends to this broker; without `spool` and `send`."""
    from urllib.parse import quote

    password = quote(broker.password, safe="") if broker is not None else ""
    at = f"streamkit:{password}@127.0.0.1:{broker.port}" if broker is not None else ""
    known: dict[str, dict[str, Any]] = {
        "mqtt": {"url": f"mqtt://{at}", "batch": OBJECTS},
        "redis": {"url": f"redis://{at.removeprefix('streamkit')}"},
        "kafka": {"url": f"kafka://{at.partition('@')[2]}"},
        "postgres": {"url": f"postgres://{at}/postgres"},
        "sqlite": {"path": str(folder / "out.db")},
    }
    return known[name]


def run(sink: dict[str, Any], frames: int) -> tuple[dict[str, Any], float]:
    """Run frames through the graph into one sink; returns the report, and CPU seconds of all threads."""
    from streamkit.config import read_text
    from streamkit.graph import build
    from streamkit.runtime.run import Pipeline

    registry = default_registry()
    add_stages(registry)
    import json

    text = f"""
        device: cpu
        sources: {{gate: {{stage: numbered_frames, uri: none, count: {frames}}}}}
        stages:
          detect: {{stage: ten_objects}}
          out: {json.dumps(sink)}
    """
    pipeline = Pipeline(build(read_text(text, registry=registry)), Device("cpu"), say=lambda text: None)
    used = time.process_time()
    code = pipeline.run()
    used = time.process_time() - used
    if code:
        raise RuntimeError(f"the run must end well, got exit code {code}")
    return pipeline.report(code), used


def measure(name: str, folder: Path, frames: int = _FRAMES) -> dict[str, float]:
    """What one emitter does: see `main`. Catching up is NaN where there is no broker that could be away."""
    broker = _BROKERS[name](folder / "broker") if name in _BROKERS else None
    if broker is not None:
        broker.start()
    spool = {"spool": {"path": str(folder / "spool")}}
    emitter = {"stage": name, **options_for(name, broker, folder), **spool}
    caught_up = float("nan")
    try:
        if broker is not None:
            away = options_for(name, type(broker)(folder / "away"), folder)
            late = {**emitter, "table": "late"} if name == "postgres" else emitter
            left, _ = run({**late, **away, "send": "objects", "timeout": "1s", "drain": "100ms"}, frames)
            found, _ = run({**late, "send": "objects"}, 1)
            caught_up = left["counts"]["records left in the spool"] / found["seconds"]
        objects, _ = run({**emitter, "send": "objects"}, frames)
        sent = objects["counts"].get("records sent", 0)
        if sent != frames * OBJECTS:
            raise RuntimeError(f"{name}: {sent} of {frames * OBJECTS} records were sent: {objects['counts']}")
        table = {"table": "whole"} if name in ("sqlite", "postgres") else {}
        whole, used = run({**emitter, **table, "send": "frames"}, frames)
        _, base = run({"stage": "nothing"}, frames)
    finally:
        if broker is not None:
            broker.kill()
    return {
        "records_per_s": sent / objects["seconds"],
        "caught_up_per_s": caught_up,
        "stage_us_per_frame": whole["stages"]["out"]["seconds"] / frames * 1e6,
        "cpu_us_per_frame": (used - base) / frames * 1e6,
    }


def main() -> None:
    """Measure what was asked for, or all that can be measured here."""
    parser = argparse.ArgumentParser(prog="python -m streamkit.bench.emitting")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(EMITTERS)}")
    parser.add_argument("--frames", type=int, default=_FRAMES)
    asked = parser.parse_args()
    print(f"{'emitter':10} {'records/s':>10} {'caught up/s':>12} {'stage us/frame':>15} {'cpu us/frame':>13}")
    for name in asked.names or EMITTERS:
        why = _BROKERS[name].missing() if name in _BROKERS else None
        if why:
            print(f"{name:10} {why}")
            continue
        with tempfile.TemporaryDirectory(prefix="emitting-", ignore_cleanup_errors=True) as folder:
            Path(folder).chmod(0o755)
            found = measure(name, Path(folder), asked.frames)
        print(f"{name:10} {found['records_per_s']:10,.0f} {found['caught_up_per_s']:12,.0f} "
              f"{found['stage_us_per_frame']:15.1f} "
              f"{found['cpu_us_per_frame']:13.1f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
