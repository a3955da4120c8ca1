"""A real pipeline behind a real server on loopback, with clips that are paced like cameras."""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from streamkit.cli.serve import checker
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.serve.app import create_app
from streamkit.serve.engine import ServeEngine
from streamkit.serve.pipeline_file import PipelineFile
from streamkit.serve.prepare import engine_of, open_store, prepare
from streamkit.serve.sampler import PipelineSampler
from streamkit.serve.server import address, listen, serving
from streamkit.serve.token import Token
from support.messages import collecting

TOKEN = "the token of the tests"
SECRET = "geheim-4711"

_NO_TLS = False
"""The servers speak HTTP; a client that may verify reads all certificates of the machine, which takes 20 ms."""

PIPELINE = f"""
plugins: [plugins]
sources:
  street: {{uri: samples/street.mp4, every: 5, pace: 10, loop: true, pace_seed: 1}}
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1?token={SECRET}"}}
stages:
  detect: {{model: demo}}
  track: {{stage: simple_track}}
  line: {{stage: line_counter, line: [[320, 60], [320, 360]]}}
"""


@dataclass
class Served:
    """A server: its address, a client without the token, and a client with it."""

    url: str
    engine: ServeEngine
    app: Any
    open: httpx.Client
    client: httpx.Client
    logged: list[str]

    def until(self, true: Any, seconds: float = 60.0) -> Any:
        """Wait until `true()` is truthy, and return its value."""
        end = time.monotonic() + seconds
        while not (answer := true()):
            assert time.monotonic() < end, f"not within {seconds} s"
            time.sleep(0.05)
        return answer

    def source(self, id_: str) -> dict[str, Any]:
        return next((entry for entry in self.client.get("/api/v1/sources").json() if entry["id"] == id_), {})

    def running(self, id_: str) -> dict[str, Any]:
        return self.until(lambda: (entry := self.source(id_)).get("state") == "running" and entry["frames"] and entry)


@contextmanager
def served(
    text: str,
    root: Any,
    *,
    port: int = 0,
    allow_files: bool = False,
    data: Any = None,
    path: Path | None = None,
    **options: Any,
) -> Iterator[Served]:
    """Serve a pipeline; `data` is its data folder, a new one if it is left out.

    With `path` of a file that gets the text, the file can be edited while it runs.
    """
    with collecting() as logged, tempfile.TemporaryDirectory() as folder:
        if path is None:
            path = root / "pipeline.yaml"
            file = None
            running, gallery = prepare(lambda: build(read(path, text=text)), path, {})
        else:
            path.write_text(text)
            running, gallery = prepare(lambda: build(read(path, may_be_empty=True)), path, {}, poll_s=0.1)
            file = PipelineFile(path, checker(path, (), None), allow_plugins=allow_files)
        data = Path(data or folder)
        store = open_store(data, "30d", "2GB")
        engine = engine_of(running, gallery, store, allow_files=allow_files, file=file)
        listening = listen("127.0.0.1", port)
        url = address("127.0.0.1", listening)
        app = create_app(engine, Token(TOKEN), **{"data": data, **options})
        thread = threading.Thread(target=running.run, daemon=True)
        with (
            engine.observing(),
            store.writing(PipelineSampler(engine)),
            serving(app, listening, refused=engine.refused),
            httpx.Client(base_url=url, timeout=20, verify=_NO_TLS) as plain,
            httpx.Client(
                base_url=url, timeout=20, verify=_NO_TLS, headers={"authorization": f"Bearer {TOKEN}"}
            ) as client,
        ):
            thread.start()
            try:
                yield Served(url, engine, app, plain, client, logged)
            finally:
                running.stop()
                thread.join(20)
                assert not thread.is_alive(), "the pipeline does not end"
