"""`--log-format json`: everything on stderr is a JSON object a line, of all processes; `--log-level`."""

import json
import re
import signal
import subprocess
import sys
import time
from datetime import datetime

import httpx
import pytest
from support.commands import command

TOKEN = "a token for the tests"
PLUGIN = """
import logging, threading, warnings
from streamkit import stage

@stage("odd")
def odd(frame):
    '''Log, warn and fail.'''
    if frame.index == 0:
        logging.getLogger("a.library").error("of a library")
        warnings.warn("of a module")
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        raise ValueError("the first frame")
"""


def pipeline(tmp_path, head=""):
    (tmp_path / "odd.py").write_text(PLUGIN)
    path = tmp_path / "p.yaml"
    path.write_text(
        f"plugins: [{tmp_path}/odd.py]\n{head}\n"
        "sources: {a: 'test://?width=64&height=64&frames=3', gone: '/no/such.mp4'}\n"
        f"stages: {{odd: {{}}, jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}\n"
    )
    return path


def lines(done):
    """The lines on stderr: each a JSON object with the fields that all have."""
    logged = [json.loads(line) for line in done.stderr.splitlines()]
    for log_line in logged:
        assert list(log_line)[:4] == ["time", "level", "logger", "message"]
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", log_line["time"])
        assert abs(datetime.fromisoformat(log_line["time"]).timestamp() - time.time()) < 600
        assert log_line["pid"] > 0
    return logged


def run(root, *args, **kwargs):
    line = [sys.executable, str(root / "run.py"), *map(str, args)]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=root, **kwargs)


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_line_of_a_run_is_json(root, tmp_path, processes):
    head = "" if processes == 1 else f"device: {{use: cpu, processes: {processes}}}"
    completed = run(root, "run", pipeline(tmp_path, head), "--log-format", "json")
    logged = lines(completed)
    assert completed.returncode == 1
    assert completed.stdout == ""
    (failed,) = [log_line for log_line in logged if log_line["message"].startswith("odd failed on a frame 0")]
    assert (failed["level"], failed["source"], failed["stage"]) == ("warning", "a", "odd")
    assert failed["logger"] == "streamkit.runtime.execution.stage_runner"
    (missing_source,) = [log_line for log_line in logged if log_line["message"].startswith("source gone failed")]
    assert (missing_source["level"], missing_source["source"]) == ("error", "gone")
    (crash,) = [log_line for log_line in logged if log_line["message"] == "uncaught exception"]
    assert (crash["level"], crash["exception"].splitlines()[-1][:17]) == ("critical", "ZeroDivisionError")
    assert [log_line["level"] for log_line in logged if log_line["message"] == "of a library"] == ["error"]
    assert [log_line["logger"] for log_line in logged if "UserWarning: of a module" in log_line["message"]] == [
        "py.warnings"
    ]
    if processes == 1:
        assert {log_line["process"] for log_line in logged} == {"main"}
    else:
        assert failed["process"].startswith("worker/")
        assert failed["pid"] != logged[-1]["pid"]
    assert any(log_line["message"].startswith("3 frames in ") for log_line in logged), "the summary"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "none.yaml", "--log-format", "json"], "none.yaml"),
        (["run", "--log-format=json", "pipeline.yaml", "--limt", "3"], "--limt"),
    ],
)
def test_an_error_is_a_json_line(root, args, words):
    completed = run(root, *args)
    (log_line,) = lines(completed)
    assert completed.returncode == 2
    assert (log_line["level"], log_line["logger"]) == ("error", "streamkit.cli")
    assert words in log_line["message"]


def test_the_environment_sets_log_levels(root, tmp_path):
    levels = "error,streamkit.runtime.execution=info"
    environment = {"STREAMKIT_LOG_FORMAT": "json", "STREAMKIT_LOG_LEVEL": levels, "PYTHONWARNINGS": "ignore"}
    logged = lines(command(root, "run", pipeline(tmp_path), env=environment))
    assert {
        log_line["level"] for log_line in logged if log_line["logger"] == "streamkit.runtime.execution.stage_runner"
    } == {"warning"}
    assert {
        log_line["level"] for log_line in logged if log_line["logger"] in ("streamkit.runtime.pipeline", "a.library")
    } == {"error"}
    assert "streamkit.cli" not in {log_line["logger"] for log_line in logged}, "the summary has the level info"
    wrong = run(root, "run", "none.yaml", "--log-level", "loud")
    assert wrong.returncode == 2
    assert "a level is one of debug, info, warning, error, critical" in wrong.stderr


def test_a_server_logs_json_with_the_ids_of_requests(root, tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("sources: {}\nstages: {draw: {}}\n")
    running = subprocess.Popen(
        [
            sys.executable,
            "run.py",
            "serve",
            str(path),
            "--port",
            "0",
            "--data",
            str(tmp_path / "data"),
            "--token",
            TOKEN,
            "--log-format",
            "json",
            "--log-level",
            "uvicorn=info",
        ],
        cwd=root,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    logged = []
    try:
        for line in running.stderr:
            logged.append(json.loads(line))
            if match := re.search(r"serving \S+ at (http://\S+)", logged[-1]["message"]):
                break
        head = {"authorization": f"Bearer {TOKEN}", "x-request-id": "add-1"}
        with httpx.Client(base_url=match[1], timeout=20, headers=head) as client:
            end_s = time.monotonic() + 30
            while client.get("/ready").status_code != 200:
                assert time.monotonic() < end_s
                time.sleep(0.05)
            new = {"id": "cam", "uri": "test://?frames=0", "options": {"fault": {}}}
            assert client.post("/api/v1/sources", json=new).json()["request_id"] == "add-1"
    finally:
        running.send_signal(signal.SIGTERM)
        _, rest = running.communicate(timeout=30)
    logged += [json.loads(line) for line in rest.splitlines()]
    assert "uvicorn.access" not in {log_line["logger"] for log_line in logged}
    assert any(log_line["logger"] == "uvicorn.error" and log_line["level"] == "info" for log_line in logged)
