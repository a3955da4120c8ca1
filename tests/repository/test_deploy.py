"""The examples of a service and a container are what the tools and the project's own files say they must be."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streamkit.cli import cli
from streamkit.runtime.shutdown import GRACE_S

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"


def options_of(command: str) -> set[str]:
    return {name for parameter in cli.commands[command].params for name in parameter.opts}


def test_the_service_starts_a_command_that_there_is():
    unit = (DEPLOY / "streamkit.service").read_text()
    words = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    assert words[0].endswith("/streamkit")
    assert words[1] in cli.commands
    assert {word for word in words if word.startswith("--")} <= options_of(words[1])
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[1]) > 2 * GRACE_S


def test_systemd_takes_the_service(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / "streamkit.service"
    unit.write_text((DEPLOY / "streamkit.service").read_text().replace("/opt/streamkit/bin/streamkit", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "streamkit.service" not in done.stderr, done.stderr
    unit.write_text(unit.read_text().replace("Restart=always", "Restart=perhaps"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert "perhaps" in done.stderr  # it does look


def test_the_container_is_made_of_what_there_is(root):
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extra = next(rest.partition("=")[2] for step, rest in steps if step == "ARG")
    assert extra in project["optional-dependencies"]
    assert "cpu" in project["optional-dependencies"]  # which its comment names
    for rest in (rest for step, rest in steps if step == "COPY"):
        assert all((root / name).exists() for name in rest.split()[:-1]), rest
    python = next(rest for step, rest in steps if step == "FROM").partition(":")[2].split("-")[0]
    low, high = re.findall(r"3\.(\d+)", project["requires-python"])
    assert int(low) <= int(python.split(".")[1]) < int(high)
    entry = json.loads(next(rest for step, rest in steps if step == "ENTRYPOINT"))
    command = json.loads(next(rest for step, rest in steps if step == "CMD"))
    assert entry == [next(iter(project["scripts"]))]
    assert {word for word in command if word.startswith("--")} <= options_of(command[0])
