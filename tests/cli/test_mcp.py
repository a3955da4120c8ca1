"""`streamkit mcp`, as a coding agent uses it: the package's own client over stdio and HTTP, and twelve tasks."""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import pytest
from anyio.from_thread import start_blocking_portal
from click.testing import CliRunner
from support.packages import require

from streamkit.cli import cli
from streamkit.core.errors import MissingPackage

require("mcp")  # imported where it is used: every process that collects the tests would take half a second

ROOT = Path(__file__).resolve().parents[2]
SECRET = "correct-horse-battery"

PLUGIN = '''
from streamkit import FrameStage, stage


@stage("tall_people", reads="detections", emits="tall")
class TallPeople(FrameStage):
    """Emit `tall` for each object that is higher than `min_height` pixels."""

    min_height: int = 40

    def process(self, frame):
        table = frame.detections
        for height in table.xyxy[:, 3] - table.xyxy[:, 1]:
            if height > self.min_height:
                frame.emit("tall", height=float(height))
'''

PING = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
HEAD = "sources:\n  street: samples/street.mp4\nstages:\n  detect: {model: demo, min_score: 0.4}\n"
RECORDS = '  jsonl: {path: "{source}.jsonl"}\n'


class Agent:
    """A client of one server, called from tests that are not asynchronous."""

    def __init__(self, portal, client):
        self._portal = portal
        self._client = client

    def answer(self, tool, **arguments):
        return self._portal.call(lambda: self._client.call_tool(tool, arguments))

    def text(self, tool, **arguments):
        answer = self.answer(tool, **arguments)
        assert not answer.is_error, answer.content[0].text
        return answer.content[0].text

    def values(self, tool, **arguments):
        return json.loads(self.text(tool, **arguments))

    def error(self, tool, **arguments):
        answer = self.answer(tool, **arguments)
        assert answer.is_error
        return answer.content[0].text

    def tools(self):
        return {tool.name: tool for tool in self._portal.call(self._client.list_tools).tools}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The working folder of the servers: the videos that ship, a plugin, and a file beside it."""
    folder = tmp_path_factory.mktemp("agent") / "work"
    (folder / "samples").mkdir(parents=True)
    for name in ("street.mp4", "plates.mp4", "plates.truth.jsonl"):
        shutil.copy(ROOT / "samples" / name, folder / "samples")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "tall_people.py").write_text(PLUGIN)
    (folder.parent / "outside.jsonl").write_text('{"secret": 1}\n')
    (folder / "link.jsonl").symlink_to(folder.parent / "outside.jsonl")
    return folder


@pytest.fixture(scope="module")
def connect():
    """Opens clients that live until the end of the module."""
    with start_blocking_portal() as portal, ExitStack() as clients:
        yield lambda client: Agent(portal, clients.enter_context(portal.wrap_async_context_manager(client)))


@pytest.fixture(scope="module")
def server_command(folder):
    """The command of a server over stdio that may only read."""
    from mcp.client.stdio import StdioServerParameters

    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
    words = ["-m", "streamkit", "mcp", "--folder", str(folder)]
    return StdioServerParameters(command=sys.executable, args=words, env=variables)


@pytest.fixture(scope="module")
def agent(connect, server_command):
    """A client over stdio of a server that may only read."""
    from mcp import Client

    return connect(Client(server_command))


@pytest.fixture(scope="module")
def http_server(folder):
    """The address and the token of a server over HTTP that may write."""
    words = [sys.executable, "-m", "streamkit", "mcp", "--http", "--port", "0", "--allow-write"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as server:
        line = server.stderr.readline()
        yield re.fullmatch(r"serving MCP at (\S+) with the header Authorization: Bearer (\S+)\n", line).groups()
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) in (0, -signal.SIGTERM)


@pytest.fixture(scope="module")
def writer(connect, http_server):
    """A client over HTTP of a server that may write."""
    url, token = http_server
    return connect(over_http(url, token))


@asynccontextmanager
async def over_http(url, token):
    """A client over HTTP with a token."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http_client,
        Client(streamable_http_client(url, http_client=http_client)) as client,
    ):
        yield client


class Task(NamedTuple):
    """A task of an agent.

    Attributes:
        stage: the stage that the agent picks from the list.
        options: the options that it looks up, in the stage's explanation.
        draft: its first YAML, with the mistake that an agent makes who guesses.
        events: the kinds of events that a run must have.
        objects: whether a record must have objects with these keys.
        outputs: the names of the files that a run must write.
        frames: how many frames to run.
    """

    stage: str
    options: tuple[str, ...]
    draft: str
    events: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("street.jsonl",)
    frames: int = 10


TRACK = HEAD + "  track: {}\n"
PLAZA = "[[0, 100], [640, 100], [640, 360], [0, 360]]"
PLATES = (
    "sources:\n  street: samples/plates.mp4\nstages:\n  detections: {path: samples/plates.truth.jsonl}\n  track: {}\n"
)
TASKS = {
    "find the objects of a video": Task(
        "detect", ("min_score",), HEAD.replace("min_score", "min_scor") + RECORDS, objects=("label", "score")
    ),
    "number the objects": Task(
        "track", ("confirm",), HEAD + "  trak: {confirm: 0s}\n" + RECORDS, objects=("track_id",)
    ),
    "count crossings of a line": Task(
        "line_counter",
        ("line",),
        TRACK + "  door: {stage: line_counter, lines: [[100, 0], [100, 360]]}\n" + RECORDS,
        ("crossed",),
    ),
    "say who is in an area": Task(
        "zone",
        ("polygon", "labels"),
        TRACK + f"  plaza: {{stage: zone, poligon: {PLAZA}}}\n" + RECORDS,
        ("entered",),
    ),
    "raise an alarm when there are many people": Task(
        "rule", ("when",), TRACK + "  crowd: {stage: rule, when: count(persons) > 2}\n" + RECORDS, ("raised",)
    ),
    "blur the people": Task(
        "draw",
        ("blur",),
        HEAD + '  draw: {blurr: [person]}\n  video: {path: "{source}.mp4"}\n',
        outputs=("street.mp4",),
    ),
    "write a table for a spreadsheet": Task(
        "csv", ("path",), HEAD + '  csv: {paths: "{source}.csv"}\n', outputs=("street.csv",)
    ),
    "store events in a database": Task(
        "sqlite",
        ("path", "table"),
        TRACK + f"  plaza: {{stage: zone, polygon: {PLAZA}}}\n  sqlite: {{path: events.db, send: event}}\n",
        outputs=("events.db",),
    ),
    "draw a heat map": Task(
        "heatmap",
        ("path", "labels"),
        HEAD + '  heatmap: {path: "{source}.png", label: [person]}\n',
        outputs=("street.png",),
    ),
    "read number plates": Task(
        "read",
        ("model", "of"),
        PLATES + "  read: {model: plate, of: detections.plate}\n" + RECORDS,
        objects=("attributes",),
    ),
    "tell the color of cars": Task(
        "classify",
        ("model", "of"),
        TRACK + "  classify: {model: colors, of: detect}\n" + RECORDS,
        objects=("attributes",),
    ),
    "use my plugin": Task(
        "tall_people",
        ("min_height",),
        f"plugins: plugins\n{HEAD}  tall_people: {{min_hight: 40}}\n{RECORDS}",
        ("tall",),
    ),
}


def repaired(text, problem):
    """The YAML with the word that a problem names replaced by the word that it proposes."""
    wrong, proposed = re.search(r"'?(\w+)(?:'|\.yaml)[^']*did you mean '(\w+)'", problem["message"]).groups()
    lines = text.splitlines(keepends=True)
    line = lines[problem["line"] - 1]
    at = line.index(wrong, problem["column"] - 1)
    lines[problem["line"] - 1] = line[:at] + proposed + line[at + len(wrong) :]
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_the_answers_lead_an_agent_to_a_pipeline_that_does_its_task(agent, name):
    task = TASKS[name]
    assert re.search(rf"^{task.stage} ", agent.text("list_stages"), re.MULTILINE)
    explanation = agent.text("explain_stage", stage=task.stage)
    assert [option for option in task.options if f"  {option}: " not in explanation] == []

    check = agent.values("check_pipeline", yaml=task.draft)
    assert not check["ok"]
    yaml = repaired(task.draft, check["problems"][-1])
    assert agent.values("check_pipeline", yaml=yaml) == {"ok": True, "problems": [], "warnings": []}

    report = agent.values("run_pipeline", yaml=yaml, frames=task.frames)
    assert report["ended"] == "complete", report["messages"]
    assert report["frames"] == task.frames
    assert set(task.events) <= report["events"].keys()
    outputs = {Path(path).name: path for path in report["outputs"]}
    assert outputs.keys() >= set(task.outputs)
    if task.objects:
        records = agent.values("read_records", path=outputs["street.jsonl"], limit=task.frames)["records"]
        objects = [detection for record in records for detection in record["objects"]]
        assert set(task.objects) <= {key for detection in objects for key in detection}


def test_the_list_of_models_names_the_card_of_a_task(agent):
    assert re.search(r"^demo +detect .* ready$", agent.text("list_models"), re.MULTILINE)


def test_only_runs_may_write_and_only_if_the_server_may(agent, writer):
    assert {tool.annotations.read_only_hint for tool in agent.tools().values()} == {True}
    writing = {name for name, tool in writer.tools().items() if not tool.annotations.read_only_hint}
    assert writing == {"run_pipeline", "draw_frame"}
    described = agent.tools()["run_pipeline"].input_schema["properties"]["frames"]["description"]
    assert described == "maximum number of frames of each source, at most 10000"


def test_a_frame_is_drawn_as_a_png_with_its_objects(agent, folder):
    (content,) = agent.answer("draw_frame", yaml=HEAD, frame=12).content
    assert content.mime_type == "image/png"
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(content.data), np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape == (360, 640, 3)
    video = cv2.VideoCapture(str(folder / "samples" / "street.mp4"))
    original = [video.read()[1] for _ in range(13)][-1]
    changed = (np.abs(drawn.astype(int) - original).max(axis=2) > 60).mean()
    assert 0.002 < changed < 0.2  # the boxes, and nothing else


def test_records_are_read_in_pages(agent, folder):
    lines = [json.dumps({"frame": index}) for index in range(5)]
    (folder / "five.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "two.csv").write_text("frame,label\n0,car\n1,person\n")
    page = agent.values("read_records", path="five.jsonl", offset=1, limit=2)
    assert page == {"records": [{"frame": 1}, {"frame": 2}], "next_offset": 3}
    assert agent.values("read_records", path="five.jsonl", offset=3) == {
        "records": [{"frame": 3}, {"frame": 4}],
        "next_offset": None,
    }
    assert agent.values("read_records", path="two.csv", offset=1)["records"] == [{"frame": "1", "label": "person"}]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("../outside.jsonl", "is not in the working folder"),
        ("/etc/passwd", "is not in the working folder"),
        ("link.jsonl", "is not in the working folder"),
        ("missing.jsonl", "there is no file missing.jsonl in the working folder"),
        ("samples/street.mp4", "records are read from .jsonl and .csv; add the stage jsonl or csv"),
    ],
)
def test_other_files_are_not_read(agent, path, text):
    assert text in agent.error("read_records", path=path)


def test_a_line_that_is_no_record_is_reported(agent, folder):
    (folder / "bad.jsonl").write_text("{}\nfour\n")
    assert "bad.jsonl: a line is not a record" in agent.error("read_records", path="bad.jsonl")


@pytest.mark.parametrize(
    "reads",
    [
        "/etc/hostname",
        "../outside.mp4",
        "file:///etc/hostname",
        "samples/../../outside.mp4",
        "~/video.mp4",
        "file:/etc/hostname",
    ],
)
def test_a_pipeline_that_reads_outside_of_the_working_folder_is_refused(agent, reads):
    yaml = HEAD.replace("samples/street.mp4", reads)
    (problem,) = agent.values("check_pipeline", yaml=yaml)["problems"]
    assert (problem["line"], problem["column"]) == (2, 11)
    assert problem["message"].startswith("sources.street leads out of the working folder")
    assert "sources.street leads out of the working folder" in agent.error("run_pipeline", yaml=yaml)
    assert "sources.street leads out of the working folder" in agent.error("draw_frame", yaml=yaml)


def test_a_webcam_may_be_read(agent):
    yaml = HEAD.replace("samples/street.mp4", "/dev/video7")
    messages = [problem["message"] for problem in agent.values("check_pipeline", yaml=yaml)["problems"]]
    assert [message for message in messages if "working folder" in message] == []


def test_a_file_that_a_condition_names_is_in_the_working_folder(agent):
    yaml = TRACK + """  known: {stage: rule, when: 'count(label in file("/etc/hostname")) > 0'}\n"""
    (problem,) = agent.values("check_pipeline", yaml=yaml)["problems"]
    assert problem["message"].startswith("stages.known.when leads out of the working folder")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ("  mqtt: {url: 'mqtt://localhost', send: events}\n", "mqtt sends data to other machines"),
        ("  webhook: {url: 'http://127.0.0.1:9'}\n", "webhook sends data to other machines"),
        ("  stream: {url: 'rtsp://127.0.0.1:9/live'}\n", "stream sends data to other machines"),
        ("  jsonl: {path: WORK/x.jsonl}\n", "stages.jsonl.path leads out of the folder of the outputs"),
        ("state: ../state\n", "state leads out of the working folder"),
    ],
)
def test_without_allow_write_nothing_leaves_the_temporary_folder(agent, folder, more, text):
    yaml = HEAD + more.replace("WORK", str(folder))
    before = sorted(folder.rglob("*"))
    assert text in agent.error("run_pipeline", yaml=yaml)
    assert sorted(folder.rglob("*")) == before


def test_an_output_folder_needs_allow_write(agent, writer, folder):
    yaml = HEAD + RECORDS
    text = "output_folder needs a server with --allow-write"
    assert text in agent.error("run_pipeline", yaml=yaml, output_folder="results")
    assert not (folder / "results").exists()
    report = writer.values("run_pipeline", yaml=yaml, frames=3, output_folder="results")
    assert report["outputs"] == [str(folder / "results" / "street.jsonl")]
    assert len((folder / "results" / "street.jsonl").read_text().splitlines()) == 3
    assert "is not in the working folder" in writer.error("run_pipeline", yaml=yaml, output_folder="../results")


def test_no_answer_has_a_secret(agent):
    yaml = (
        HEAD
        + f"""  webhook:
    url: http://user:{SECRET}@127.0.0.1:9/hook
    secret: "${{HOOK_SECRET}}"
    headers: {{Authorization: {SECRET}}}
    batch: "${{HOOK_SECRET}}"
"""
    )
    answer = agent.text("check_pipeline", yaml=yaml)
    assert "webhook.batch must be a whole number, got '***'" in answer
    assert SECRET not in answer
    assert SECRET not in agent.error("run_pipeline", yaml=yaml)
    assert SECRET not in agent.error("run_pipeline", yaml=yaml + "  jsonl: {path: '/${HOOK_SECRET}'}\n")


def test_records_and_outputs_of_a_run_have_no_secret(agent):
    color = '  classify: {model: color, of: detect, attribute: "${HOOK_SECRET}"}\n'
    yaml = TRACK + color + '  jsonl: {path: a.jsonl}\n  csv: {path: "${HOOK_SECRET}.csv"}\n'
    report = agent.values("run_pipeline", yaml=yaml, frames=4)
    assert report["ended"] == "complete"
    records, table = map(Path, report["outputs"])
    assert table.name == "***.csv"
    assert SECRET in records.read_text()
    text = agent.text("read_records", path=str(records))
    assert '"***": {' in text
    assert SECRET not in text


def test_a_run_that_takes_too_long_is_stopped(agent):
    yaml = "sources:\n  ever: {stage: test_pattern, pace: realtime}\nstages:\n  csv: {path: a.csv}\n"
    report = agent.values("run_pipeline", yaml=yaml, frames=10000, timeout_s=4)
    assert report["ended"] == "stopped after timeout_s, 4 s"


def test_what_plugins_and_stages_print_is_apart_from_the_protocol(server_command, folder, caplog):
    from mcp import Client

    (folder / "loud.py").write_text('import os\nprint("loud")\nos.write(1, b"louder\\n")\n')
    yaml = "plugins: loud.py\n" + HEAD + '  jsonl: {path: "-"}\n'
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Client(server_command)) as client:
        agent = Agent(portal, client)
        assert agent.values("check_pipeline", yaml=yaml)["ok"]
        report = agent.values("run_pipeline", yaml=yaml, frames=1)
    assert report["ended"] == "complete"
    assert {"loud", "louder"} <= set(report["messages"])
    assert any(line.startswith('{"schema":"streamkit/1","source":"street","frame":0') for line in report["messages"])
    assert [record.getMessage() for record in caplog.records if record.name.startswith("mcp")] == []


def test_a_server_that_is_terminated_leaves_nothing(folder, tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "streamkit", "mcp"]
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        server.stdin.write(PING)
        server.stdin.flush()
        assert b'"id":1' in server.stdout.readline()
        assert [path.name.startswith("streamkit-mcp-") for path in tmp_path.iterdir()] == [True]
        server.terminate()
        assert server.wait(20) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give the pipeline either as yaml or as path"),
        ({"yaml": HEAD, "path": "p.yaml"}, "give the pipeline either as yaml or as path"),
        ({"path": "none.yaml"}, "there is no file none.yaml in the working folder"),
        ({"yaml": HEAD, "frames": 0}, "frames must be from 1 to 10000, got 0"),
        ({"yaml": HEAD, "timeout_s": 0}, "timeout_s must be above 0 and at most 600, got 0"),
        ({"yaml": "sources: [", "frames": 1}, "pipeline.yaml:1:"),
    ],
)
def test_wrong_arguments_say_what_is_right(agent, arguments, text):
    assert text in agent.error("run_pipeline", **arguments)


def test_a_page_of_another_site_does_not_reach_the_server(http_server):
    import httpx2

    url, token = http_server
    signed_in = {"Authorization": f"Bearer {token}"}
    hostile = httpx2.post(url, headers={**signed_in, "Host": "evil.example"}, json={})
    assert hostile.status_code == 421
    hostile = httpx2.post(url, headers={**signed_in, "Origin": "http://evil.example"}, json={})
    assert hostile.status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}])
def test_without_the_token_nothing_is_answered(http_server, headers):
    import httpx2

    refused = httpx2.post(http_server[0], headers=headers, json={})
    assert refused.status_code == 401
    assert "the token that the server prints" in refused.text


def test_without_the_package_the_command_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingPackage, match=r"streamkit mcp needs the package mcp; install it with: .*\[mcp\]"):
        CliRunner().invoke(cli, ["mcp", "--folder", "."], catch_exceptions=False, standalone_mode=False)


def test_a_port_in_use_is_an_error(http_server):
    port = re.search(r":(\d+)/", http_server[0])[1]
    words = [sys.executable, "-m", "streamkit", "mcp", "--http", "--port", port]
    completed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in completed.stderr
