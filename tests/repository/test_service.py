"""The example's systemd service: it starts what there is, is closed to the rest of the machine, and passes systemd."""

import re
import shutil
import subprocess
import sys

import pytest

from streamkit.cli import cli
from streamkit.runtime.shutdown import GRACE_S

DROP_INS = ("gpu", "camera")
MAX_EXPOSURE = 3.0


@pytest.fixture(scope="module")
def deploy(root):
    return root / "examples" / "deploy"


@pytest.fixture(scope="module")
def unit(deploy):
    return (deploy / "streamkit.service").read_text()


@pytest.fixture
def analyze(deploy, tmp_path):
    """Runs systemd-analyze on the service with some of its drop-ins; changes are made to the text before."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")

    def run(*command, drop_ins=(), change=("", "")):
        text = (deploy / "streamkit.service").read_text().replace("/opt/streamkit/bin/streamkit", sys.executable)
        for name in drop_ins:  # a drop-in is read after the unit, section by section
            text += (deploy / "streamkit.service.d" / f"{name}.conf").read_text()
        assert change[0] in text
        (tmp_path / "streamkit.service").write_text(text.replace(*change))
        line = ["systemd-analyze", *command, tmp_path / "streamkit.service"]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    return run


def exposure(done):
    assert done.returncode == 0, done.stderr
    return float(re.search(r"Overall exposure level for streamkit\.service: ([\d.]+)", done.stdout)[1])


def test_the_service_starts_a_command_that_there_is(unit):
    words = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    assert words[0].endswith("/streamkit")
    options = {name for parameter in cli.commands[words[1]].params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)[1]) > 2 * GRACE_S


def test_the_service_may_compile_code_at_run_time(unit):
    assert not re.search(r"^MemoryDenyWriteExecute", unit, re.MULTILINE)  # Numba refuses to load with it


def test_the_token_is_a_credential_of_the_service(unit):
    name = re.search(r"^LoadCredential=(\w+):/etc/streamkit/", unit, re.MULTILINE)[1]
    assert f"\nEnvironment=STREAMKIT_TOKEN_FILE=%d/{name}\n" in unit


@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in DROP_INS), DROP_INS], ids=str)
def test_systemd_accepts_the_service(analyze, drop_ins):
    completed = analyze("verify", "--man=no", drop_ins=drop_ins)
    assert "streamkit.service" not in completed.stderr, completed.stderr


def test_systemd_does_look_at_the_service(analyze):
    completed = analyze("verify", "--man=no", change=("Restart=always", "Restart=perhaps"))
    assert "perhaps" in completed.stderr


@pytest.mark.parametrize("drop_ins", [(), *((name,) for name in DROP_INS), DROP_INS], ids=str)
def test_the_service_is_exposed_little(analyze, drop_ins):
    assert exposure(analyze("security", "--offline=true", "--no-pager", drop_ins=drop_ins)) <= MAX_EXPOSURE


def test_a_service_without_restrictions_is_exposed(analyze, unit):
    restrictions = unit[unit.index("DynamicUser=") : unit.index("[Install]")]
    assert exposure(analyze("security", "--offline=true", "--no-pager", change=(restrictions, ""))) > 2 * MAX_EXPOSURE
