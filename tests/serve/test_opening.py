"""While stages open, the API and the header of the page say which, and what takes long."""

import pytest
from support.pages import CHROMIUM, chromium_fixture, expect, open_page_fixture  # noqa: F401  fixtures
from support.servers import served

PLUGIN = """
import time
from pathlib import Path

from streamkit import BatchStage, stage

@stage("patient", reads="pixels")
class Patient(BatchStage):
    ""\"Opens when a file is there.""\"

    path: str = ""

    def open(self):
        self.context.runtime.opening_note = "compiling, some seconds"
        while not Path(self.path).exists():
            time.sleep(0.02)

    def process(self, batch):
        return batch
"""


@pytest.fixture
def waiting(root, tmp_path):
    """A server whose pipeline opens when a file is there, and this file."""
    file = tmp_path / "go"
    (tmp_path / "patient.py").write_text(PLUGIN)
    text = f"""
plugins: [{tmp_path}/patient.py]
sources: {{cam: {{uri: "test://?frames=0", pace: 10}}}}
stages: {{patient: {{path: {file}}}}}
"""
    with served(text, root) as server:
        try:
            yield server, file
        finally:
            file.touch()


NOTE = "patient (compiling, some seconds)"


@pytest.fixture
def server(waiting):
    return waiting[0]


def test_the_status_names_the_opening_stage(waiting):
    server, file = waiting
    server.until(lambda: server.open.get("/api/v1/status").json()["opening"] == [NOTE])
    assert server.open.get("/api/v1/status").json()["ready"] is False
    file.touch()
    server.running("cam")
    assert server.open.get("/api/v1/status").json()["opening"] == []


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")
def test_the_header_names_the_slow_step(open_page, waiting):
    _, file = waiting
    page = open_page()
    expect(page.locator("#status-text")).to_have_text("starting")
    expect(page.locator("#reason")).to_have_text(f"opening {NOTE}")
    file.touch()
    expect(page.locator("#status-text")).to_have_text("running")
    expect(page.locator("#reason")).to_have_text("")
