"""A run over several processes that a test changes, and whose processes it kills."""

import json
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.config.plan import Graph, SourceConfig
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.prepare import prepare
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.reload import watching
from streamkit.runtime.run import RunConfig
from support.fleets import until
from support.messages import collect

PLUGIN = '''
import time
from streamkit import FrameStage, stage

@stage("tag", writes="events", changeable=("text",))
class Tag(FrameStage):
    """Emit an event with a text at each frame."""

    text: str = "first"
    pause_s: float = 0.0

    def open(self):
        time.sleep(0.3)

    def changed(self):
        if self.text == "bad":
            raise ValueError("no such text")

    def process(self, frame):
        time.sleep(self.pause_s)
        frame.emit("tagged", text=self.text)
'''

CAMERA = "{uri: 'test://?width=96&height=64&fps=20', pace: realtime}"
LOOP = "{uri: samples/street.mp4, loop: true, pace: realtime}"
FILE = "'test://?width=96&height=64&fps=40&frames={frames}'"
STAGES = """
  tag: {}
  all: {stage: jsonl, path: OUT/all.jsonl}
  own: {stage: jsonl, path: "OUT/{source}.jsonl"}
  db: {stage: sqlite, path: OUT/events.db, send: events, spool: {path: OUT/spool}}
"""
SLOW = STAGES.replace("tag: {}", "tag: {pause_s: 0.02}")


PICKY = '''
import os
from streamkit import BatchStage, stage
from streamkit.plugin_api import ConfigError

@stage("picky", scope="source")
class Picky(BatchStage):
    """Cannot be opened while a file is there."""

    file: str

    def open(self):
        if os.path.exists(self.file):
            raise ConfigError("the device has no memory left")

    def process(self, batch):
        return batch
'''
"""A plugin with a stage that cannot be opened while a file is there."""


def deadly(source: str, frame: int) -> str:
    """A plugin with a stage that kills its process at a frame of a source, counted from 1; follows `Live.PLUGIN`."""
    return f"""
import os, signal

@stage("deadly")
class Deadly(FrameStage):
    'Kills its process.'

    def open(self):
        self.seen = 0

    def process(self, frame):
        self.seen += frame.source == {source!r}
        if self.seen == {frame}:
            os.kill(os.getpid(), signal.SIGKILL)
"""


class Live:
    """A `WorkerFleet`, or what follows the YAML with one, on a thread."""

    DEVICE = "{use: cpu, processes: 2}"
    PLUGIN = PLUGIN

    def __init__(self, folder: Path, sources: dict[str, str], stages: str = STAGES, head: str = "") -> None:
        self.folder = folder
        self.out = folder / "out"
        self.path = folder / "p.yaml"
        (folder / "live.py").write_text(self.PLUGIN)
        self.head = head
        self.logged = collect()
        self.codes = list[int]()
        self.write(sources, stages)
        self.run: Any = None

    def write(self, sources: dict[str, str], stages: str = STAGES) -> None:
        listed = "".join(f"  {id_}: {source}\n" for id_, source in sources.items())
        street = Path(__file__).parents[2] / "samples/street.mp4"
        text = f"device: {self.DEVICE}\nplugins: [live.py]\n{self.head}sources:\n{listed}stages:{stages}"
        self.path.write_text(text.replace("OUT", str(self.out)).replace("samples/street.mp4", str(street)))

    def graph(self) -> Graph:
        return build(read(self.path, may_be_empty=True))

    def source(self, id_: str, entry: str) -> SourceConfig:
        before = self.path.read_text()
        self.write({id_: entry})
        config = next(source for source in read(self.path).sources if source.id == id_)
        self.path.write_text(before)
        return config

    @contextmanager
    def running(
        self,
        *,
        keep_running: bool = True,
        watch: bool = False,
        code: int | None = 130,
        meanwhile: Callable[[], None] = lambda: None,
        gallery: Gallery | None = None,
    ) -> Iterator["Live"]:
        """Run it; at the end stop it and check its exit code. `meanwhile` is called while it starts."""
        self.codes.clear()
        self.run = (
            watching(self.path, self.graph, None, poll_s=0.1)
            if watch
            else (prepare(self.graph(), self.path, {}, RunConfig(keep_running=keep_running), gallery=gallery))
        )
        assert isinstance(self.fleet, WorkerFleet)
        thread = threading.Thread(target=lambda: self.codes.append(self.run.run()), daemon=True)
        thread.start()
        try:
            meanwhile()
            until(lambda: self.run.ready or not thread.is_alive())
            yield self
        finally:
            if keep_running or watch:
                self.run.stop()
            thread.join(60)
            assert not thread.is_alive(), "the run does not end"
        assert self.codes == [code], self.logged

    @property
    def fleet(self) -> WorkerFleet:
        running_fleet: WorkerFleet = getattr(self.run, "_running", self.run)
        return running_fleet

    # ------------------------------------------------------------------------------------------------- processes

    def worker_of(self, source: str) -> WorkerHandle:
        owner = self.fleet.sources.owner(source)
        assert isinstance(owner, WorkerHandle)
        return owner

    def kill(self, *sources: str, number: int = signal.SIGKILL) -> None:
        """Kill the processes of these sources."""
        for worker in {self.worker_of(source) for source in sources}:
            os.kill(worker.child.pid, number)

    # ------------------------------------------------------------------------------------------------- what it wrote

    def records(self, name: str = "all", source: str | None = None) -> list[dict[str, Any]]:
        for path in (self.out / f".{name}.jsonl.part", self.out / f"{name}.jsonl"):
            if path.exists():
                lines = path.read_bytes().split(b"\n")[:-1]
                records = [json.loads(line) for line in lines]
                return [record for record in records if source in (None, record["source"])]
        return []

    def indices(self, source: str, name: str = "all") -> list[int]:
        return [record["frame"] for record in self.records(name, source)]

    def texts(self, source: str) -> set[str]:
        """The texts of the stage `tag` in a source's last records."""
        events = [event for record in self.records("all", source)[-3:] for event in record["events"]]
        return {event["data"]["text"] for event in events if event["kind"] == "tagged"}

    def more(self, source: str, seconds: float = 30) -> None:
        """Wait until ten more frames of a source have come to the shared sink."""
        before = len(self.indices(source))
        until(lambda: len(self.indices(source)) >= before + 10, seconds)


def restarts_in(path: Path) -> list[tuple[str, str]]:
    """Source and record of each event `restarted` in a table of events."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT source, record FROM events WHERE kind = 'restarted' ORDER BY rowid").fetchall()
    return [(source, data) for source, data in rows]
