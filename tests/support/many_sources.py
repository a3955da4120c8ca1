"""A real server whose pipeline has many sources that no thread reads: their states and events are set by the test."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.serve.app import create_app
from streamkit.serve.prepare import engine_of, open_store, prepare
from streamkit.serve.server import address, listen, serving
from streamkit.serve.store.database import ServeDatabase
from streamkit.serve.token import Token
from support.servers import TOKEN, Served

AREAS = ("entrance", "yard", "dock", "hall", "roof", "parking", "office", "storage", "fence", "lab")
DATA = '{"direction": "in", "label": "car"}'
SITES = ("plant-a", "plant-b", "harbor")


def yaml_of(count: int) -> str:
    """A pipeline of `count` cameras in ten groups of three sites, with names of their own."""
    lines = [
        f"  cam{n:03d}: {{uri: 'test://', name: {AREAS[n % 10].capitalize()} {n // 10 + 1}, group: {AREAS[n % 10]}, "
        f"site: {SITES[n % 3]}, tags: [{'outdoor' if n % 2 else 'indoor'}]}}"
        for n in range(count)
    ]
    return "sources:\n" + "\n".join(lines) + "\nstages: {jsonl: {path: /dev/null}}\n"


def set_running(state: SourceState, fps: float) -> None:
    """Let a source look as if it delivered frames at a rate."""
    now_s = time.monotonic()
    state.frames = state.out = 100_000
    state.set_state("running")
    for ago_s in (4, 2, 0):
        frames = int(100_000 - fps * ago_s)
        state._samples.append((now_s - ago_s, frames, frames))


@contextmanager
def serving_many(root: Any, count: int, *, events: int = 0) -> Iterator[Served]:
    """Serve `count` sources that are running at 25 frames/s, and `events` events of them."""
    path = root / "pipeline.yaml"
    running, gallery = prepare(lambda: build(read(path, text=yaml_of(count))), path, {})
    running._running.ready = True
    for place, state in enumerate(running.states.values()):
        set_running(state, 25.0 if place % 5 else 12.5)
    with tempfile.TemporaryDirectory() as folder:
        add_events(Path(folder), list(running.states), events)
        store = open_store(Path(folder), "30d", "2GB")
        engine = engine_of(running, gallery, store, allow_files=False)
        listening = listen("127.0.0.1", 0)
        url = address("127.0.0.1", listening)
        app = create_app(engine, Token(TOKEN), data=Path(folder))
        headers = {"authorization": f"Bearer {TOKEN}"}
        with (
            engine.observing(),
            store.writing(),
            serving(app, listening, refused=engine.refused),
            httpx.Client(base_url=url, timeout=20, verify=False) as plain,
            httpx.Client(base_url=url, timeout=20, verify=False, headers=headers) as client,
        ):
            yield Served(url, engine, app, plain, client, [])


def add_events(folder: Path, ids: list[str], count: int) -> None:
    """Write events of the last day into a data folder, spread over the sources."""
    database = ServeDatabase(folder)
    now_s = time.time()
    rows = (
        (
            now_s - 86_000 * (count - n) / count,
            ids[n * 7 % len(ids)],
            "line",
            "crossed",
            n,
            n / 25,
            n,
            "car",
            DATA,
            "car",
        )
        for n in range(count)
    )
    with contextlib.closing(database.connect()) as connection, connection:
        columns = "time_s, source, stage, kind, frame, pts_s, track_id, label, data, words"
        connection.executemany(f"INSERT INTO events ({columns}) VALUES ({', '.join('?' * 10)})", rows)
    database.close()
