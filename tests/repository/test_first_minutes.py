"""docs/start.md as a new user follows it: every command is read from the built site, and runs in an empty environment.

The wheel is built here. Its dependencies are downloaded, as for the user.
"""

import html
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.built_site import build_site
from support.default_network import shipped_as_default

ROOT = Path(__file__).resolve().parents[2]
MAX_S = 600.0
"""What it may take in all."""

pytest.importorskip("build")
pytestmark = [
    pytest.mark.long,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="needs mosquitto and mosquitto-clients"),
]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """The blocks of code of the built page, in order: language and text."""
    site = tmp_path_factory.mktemp("site")
    build_site(site)
    page = (site / "start.html").read_text()
    code_blocks = re.findall(r'<div class="language-(\w+) highlight">.*?<code>(.*?)</code>', page, re.DOTALL)
    assert len(code_blocks) > 5
    return [(language, html.unescape(re.sub(r"<[^>]+>", "", text))) for language, text in code_blocks]


class Reader:
    """Who follows the page: a shell in an empty folder. The activated environment holds from block to block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STREAMKIT_"))}
        variables.pop("VIRTUAL_ENV", None)
        self.env = {**variables, "CUDA_VISIBLE_DEVICES": ""}
        base = Path(sys.base_prefix) / "bin"
        self.env["PATH"] = f"{base}:{os.environ['PATH']}"

    def _shell(self, text: str) -> list[str]:
        ready = ". .venv/bin/activate\n" if (self.folder / ".venv").exists() else ""
        return ["bash", "-euo", "pipefail", "-c", ready + text]

    def run(self, text: str) -> str:
        completed = subprocess.run(
            self._shell(text), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=MAX_S
        )
        assert completed.returncode == 0, f"{text}\n{completed.stdout}{completed.stderr}"
        return completed.stdout + completed.stderr

    @contextmanager
    def server(self, text: str) -> Iterator[str]:
        """Run a command that serves until Ctrl-C; yields its address."""
        log = self.folder / "serve.log"
        with log.open("w") as output:
            server = subprocess.Popen(
                self._shell(f"exec {text.strip()}"), cwd=self.folder, env=self.env, stderr=output, stdout=output
            )
        try:
            until(lambda: "http://" in log.read_text() or server.poll() is not None, 60)
            yield re.search(r"http://\S+?(?=[/#\s]|$)", log.read_text())[0]
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 130, log.read_text()  # as a shell reports Ctrl-C
        finally:
            server.kill()
            server.wait()


def until(true, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end_s, f"not within {seconds} s"
        time.sleep(0.2)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[None]:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 1883)) == 0:
            pytest.skip("port 1883 is in use")
    config = tmp_path / "mosquitto.conf"
    config.write_text("listener 1883 127.0.0.1\nallow_anonymous true\n")
    with subprocess.Popen(["mosquitto", "-c", config], stderr=subprocess.DEVNULL) as running:
        yield
        running.terminate()


def test_the_page_takes_a_new_user_from_nothing_to_a_broker(blocks, broker, tmp_path):
    start_s = time.monotonic()
    folder = tmp_path / "user"
    folder.mkdir()
    line = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT]
    subprocess.run(line, check=True, capture_output=True, timeout=120)
    shutil.copy(ROOT / "samples" / "street.mp4", folder / "visit.mp4")
    for place in (folder, folder / "shop"):  # nothing is downloaded from elsewhere
        shipped_as_default(place)
    reader = Reader(folder)
    output = ""
    served = False
    for language, text in blocks:
        if language == "yaml" and text.startswith("sources:"):
            (folder / "shop" / "pipeline.yaml").write_text(text)
        elif language == "yaml":
            with (folder / "shop" / "pipeline.yaml").open("a") as file:
                file.write(text)
        elif text.startswith("streamkit serve"):
            with reader.server(text) as address:
                look_at(address, re.search(r"--token (\S+)", text)[1])
            served = True
        else:
            output += reader.run(text)
    took_s = time.monotonic() - start_s
    print(f"\n{took_s:.0f} s")
    assert took_s < MAX_S
    assert served
    assert (folder / "streamkit-demo" / "out" / "street.mp4").is_file()
    assert " crossed line\n" in output  # the count of the reader's own video
    sent = next(json.loads(output_line) for output_line in output.splitlines() if output_line.startswith("{"))
    assert (sent["event"]["kind"], sent["source"]) == ("crossed", "visit")


def look_at(address: str, token: str) -> None:
    """The page is there, and the reader's video reaches the line."""
    with urllib.request.urlopen(address, timeout=10) as page:
        assert b"<title>" in page.read()

    def crossed() -> bool:
        request = urllib.request.Request(f"{address}/api/v1/events", headers={"authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return any(event["kind"] == "crossed" for event in json.load(answer))

    until(crossed, 60)
