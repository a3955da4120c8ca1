"""What the live view costs the server: its CPU time without and with the page open, in turns.

usage: python benchmarks/live_page.py URI [URI ...] [--streams 16] [--seconds 20] [--pairs 3] [--sockets] [--apart]
       [--unwatched] [--json FILE]

Each URI is a file, which plays at its own rate without end, or a camera; they are used in turn, up to `streams`.
The pipeline only writes records, so that the server reads and decodes, and hardly more.

Chromium decodes the videos on the same cores, which slows the server too. Three options tell this from the cost of the
live view. With `--sockets`, a client asks for what the page asks for and decodes nothing. With `--apart`, the server
has the first core for itself. With `--unwatched`, a second server does the same work without a viewer.

Needs Chromium and the extras `serve` and `test`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import websockets
from playwright.sync_api import Page, sync_playwright

RUN = Path(__file__).parents[1] / "run.py"
TOKEN = "live-page-benchmark"
_SHOWN = "[...document.querySelectorAll('.cell video')].filter((one) => one.readyState >= 2 && !one.hidden).length"
_FRAMES = "[...document.querySelectorAll('.cell video')].map((one) => one.getVideoPlaybackQuality().totalVideoFrames)"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("uris", nargs="+")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--sockets", action="store_true", help="no browser: a client that decodes nothing")
    parser.add_argument("--apart", action="store_true", help="the server on the first core, the client on the others")
    parser.add_argument("--unwatched", action="store_true", help="also measure a second server, without a viewer")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    others = set(range(1, os.cpu_count() or 1))
    if arguments.apart and not others:
        parser.error("--apart needs two cores, and this machine has one")
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_:
        if arguments.apart:
            os.sched_setaffinity(0, {0})
        servers = [open_.enter_context(_server(Path(folder) / name, arguments)) for name in _names(arguments)]
        urls = [_started(server) for server in servers]
        if arguments.apart:
            os.sched_setaffinity(0, others)
        measure = _by_client if arguments.sockets else _by_browser
        pairs = measure(urls[0], [server.pid for server in servers], arguments)
    for place, name in enumerate(_names(arguments)):
        shares_of_core = [(without[place], with_page[place]) for without, with_page in pairs]
        for without, with_page in shares_of_core:
            print(f"{name}: without the page {without:6.1%} of a core, with it {with_page:6.1%}")
        more = statistics.median(with_page - without for without, with_page in shares_of_core)
        print(f"{name}, {arguments.streams} streams: {more:.1%} of a core more")
    if arguments.json:
        figures = {"streams": arguments.streams, "seconds": arguments.seconds, "pairs": pairs}
        arguments.json.write_text(json.dumps(figures, indent=1))


def _names(arguments: argparse.Namespace) -> list[str]:
    return ["watched", "unwatched"][: 1 + arguments.unwatched]


@contextlib.contextmanager
def _server(folder: Path, arguments: argparse.Namespace) -> Iterator[subprocess.Popen[str]]:
    """A server with files of its own."""
    folder.mkdir()
    path = folder / "pipeline.yaml"
    path.write_text(_pipeline(arguments.uris, arguments.streams, str(folder)))
    ways = ["--port", "0", "--token", TOKEN, "--data", str(folder / "data")]
    command = [sys.executable, str(RUN), "serve", str(path), *ways]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            yield server
        finally:
            server.terminate()


def _pipeline(uris: list[str], streams: int, folder: str) -> str:
    lines = ["device: cpu", "sources:"]
    for number, uri in zip(range(streams), itertools.cycle(uris), strict=False):
        pacing = "" if "://" in uri else ", pace: realtime, loop: true"
        where = uri if "://" in uri else str(Path(uri).resolve())
        lines.append(f'  camera{number}: {{uri: "{where}"{pacing}}}')
    return "\n".join([*lines, "stages:", f'  jsonl: {{path: "{folder}/{{source}}.jsonl"}}', ""])


def _by_client(url: str, pids: list[int], arguments: argparse.Namespace) -> list[tuple[list[float], list[float]]]:
    pairs = []
    for _ in range(arguments.pairs):
        without = _cpu(pids, arguments.seconds)
        client = multiprocessing.Process(target=_client, args=(url, arguments.streams), daemon=True)
        client.start()
        time.sleep(3.0)
        pairs.append((without, _cpu(pids, arguments.seconds)))
        client.terminate()
        client.join()
        time.sleep(4.0)  # the server makes video for 3 s after the last request
    return pairs


def _client(url: str, streams: int) -> None:
    """What the live view asks for: a video of each source, all records, and the state every two seconds."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    ids = [f"camera{number}" for number in range(streams)]
    records = "records?batch=true&" + "&".join(f"source={id_}" for id_ in ids)

    async def receive(place: str, request: dict[str, list[str]] | None = None) -> None:
        address = f"{url.replace('http', 'ws')}api/v1/{place}"
        async with websockets.connect(address, max_size=None, compression=None, additional_headers=headers) as socket:
            if request is not None:
                await socket.send(json.dumps(request))
            async for _ in socket:
                pass

    async def poll() -> None:
        async with httpx.AsyncClient(headers=headers) as http:
            while True:
                for place in ("status", "sources"):
                    await http.get(f"{url}api/v1/{place}")
                await asyncio.sleep(2.0)

    async def all_of_them() -> None:
        await asyncio.gather(poll(), receive("videos", {"sources": ids}), receive(records))

    with contextlib.suppress(websockets.ConnectionClosed):
        asyncio.run(all_of_them())


def _started(server: subprocess.Popen[str]) -> str:
    url = _url(server)
    _until(lambda: all(source["state"] == "running" for source in _get(url, "api/v1/sources")), "the sources to run")
    return url


def _by_browser(url: str, pids: list[int], arguments: argparse.Namespace) -> list[tuple[list[float], list[float]]]:
    chromium = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
    pairs = []
    with sync_playwright() as runner:
        browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(arguments.pairs):
            without = _cpu(pids, arguments.seconds)
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(f"{url}#token={TOKEN}")
            page.locator("#sign-out").wait_for()
            page.goto(f"{url}#/live")
            _until(lambda page=page: page.evaluate(_SHOWN) == arguments.streams, "all videos to play", page)
            frames = sum(page.evaluate(_FRAMES))
            with_page = _cpu(pids, arguments.seconds)
            shown = (sum(page.evaluate(_FRAMES)) - frames) / arguments.seconds
            print(f"{shown:.0f} frames/s in the page", file=sys.stderr)
            pairs.append((without, with_page))
            page.close()
            time.sleep(4.0)  # the server makes video for 3 s after the last request
        browser.close()
    sources = _get(url, "api/v1/sources")
    dropped = {source["id"]: source["dropped"] for source in sources if sum(source["dropped"].values())}
    print(f"dropped: {dropped or 'none'}", file=sys.stderr)
    return pairs


def _url(server: subprocess.Popen[str]) -> str:
    assert server.stderr is not None
    for line in server.stderr:
        if "http://" in line:
            return line[line.index("http://") :].split()[0].split("#")[0]
    raise SystemExit("the server did not start")


def _get(url: str, path: str) -> Any:
    request = urllib.request.Request(f"{url}{path}", headers={"authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def _until(true: Any, what: str, page: Page | None = None) -> None:
    until_s = time.monotonic() + 60
    while not true():
        if time.monotonic() > until_s:
            raise SystemExit(f"waited 60 s for {what}")
        page.wait_for_timeout(250) if page else time.sleep(0.25)


def _cpu(pids: list[int], seconds: float) -> list[float]:
    """The share of a core that each of these processes, with its children, uses over some seconds."""
    start_s = time.monotonic()
    before = list(map(_used_s, pids))
    time.sleep(seconds)
    return [(_used_s(pid) - used_s) / (time.monotonic() - start_s) for pid, used_s in zip(pids, before, strict=True)]


def _used_s(pid: int) -> float:
    server = psutil.Process(pid)
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return sum(cpu.user + cpu.system for cpu in times)


if __name__ == "__main__":
    main()
