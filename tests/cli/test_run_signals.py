"""A run that is stopped or changed from outside: signals, Ctrl-C while it is profiled, and a file it watches."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import PIPELINE, command, decoded, records, write

SLOW = '''
import time

from streamkit import FrameStage, stage

@stage("slow")
class Slow(FrameStage):
    """Take two seconds for a frame."""

    def process(self, frame):
        time.sleep(2)
'''


def started_run(line: list[str], root: Path, folder: Path) -> subprocess.Popen[str]:
    """A run whose first records are out."""
    running = subprocess.Popen(line, cwd=root, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    written = folder / "out" / ".street.jsonl.part"
    while not (written.exists() and written.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    return running


def test_a_second_signal_stops_at_once_and_leaves_no_part_files(root: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    sources = "  street: {uri: samples/street.mp4, loop: true}"
    text = PIPELINE.format(sources=sources, out=tmp_path / "out").replace("  draw: {}", "  slow: {}\n  draw: {}")
    path = write(tmp_path, f"plugins: [slow.py]\nbatch: 1\n{text}")
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--report", str(tmp_path / "r.json")]
    with started_run(line, root, tmp_path) as running:
        assert sorted(part.name for part in tmp_path.rglob(".*.part")) == [
            ".r.json.part",
            ".street.jsonl.part",
            ".street.mp4.part",
        ]
        running.send_signal(signal.SIGINT)
        while not (line_read := running.stderr.readline()).startswith("stopping: "):
            assert line_read, "it ended"
        assert running.poll() is None  # it drains, a frame in two seconds
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=6) == 130  # what it had in hand would take it much longer
    assert not list(tmp_path.rglob(".*.part"))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_closes(root: Path, tmp_path: Path, number: int) -> None:
    sources = "  street: {uri: samples/street.mp4, loop: true, pace: 20}"
    path = write(tmp_path, PIPELINE.format(sources=sources, out=tmp_path / "out"))
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--report", str(tmp_path / "r.json")]
    running = started_run(line, root, tmp_path)
    running.send_signal(number)
    _, log = running.communicate(timeout=30)
    assert running.returncode == 130, log
    report = json.loads((tmp_path / "r.json").read_text())
    street = report["sources"]["street"]
    assert street["out"] == report["frames"] > 0
    assert street["frames"] == street["out"] + sum(street["dropped"].values())  # a busy machine falls behind the pace
    assert len(records(tmp_path / "out/street.jsonl")) == report["frames"] == decoded(tmp_path / "out/street.mp4")


def test_a_closed_terminal_drains_and_closes(root: Path, tmp_path: Path) -> None:
    sources = "  street: {uri: samples/street.mp4, loop: true, pace: 20}"
    path = write(tmp_path, PIPELINE.format(sources=sources, out=tmp_path / "out"))
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--report", str(tmp_path / "r.json")]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(root)
        os.execv(line[0], line)
    first_record = tmp_path / "out" / ".street.jsonl.part"
    deadline_s = time.monotonic() + 60
    while not (first_record.exists() and first_record.stat().st_size) and time.monotonic() < deadline_s:
        if select.select([terminal], [], [], 0.05)[0]:  # its messages and bars must not fill the terminal
            os.read(terminal, 1 << 16)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 130
    report = json.loads((tmp_path / "r.json").read_text())
    assert len(records(tmp_path / "out/street.jsonl")) == report["frames"] == decoded(tmp_path / "out/street.mp4") > 0
    assert not list(tmp_path.rglob(".*.part"))


def test_a_signal_of_a_closed_terminal_that_is_ignored_stays_ignored(root: Path, tmp_path: Path) -> None:
    path = write(tmp_path, "sources: {a: 'test://?width=64&height=48&frames=3'}\nstages: {jsonl: {path: a.jsonl}}\n")
    code = "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execvp('setsid', {line})"
    plugin = "import os, signal\nfrom streamkit import stage\n@stage('hang_up')\ndef hang_up(frame):\n"
    (tmp_path / "hang_up.py").write_text(f'{plugin}    """Hang up."""\n    os.kill(os.getpid(), signal.SIGHUP)\n')
    path.write_text(f"device: cpu\nplugins: [hang_up.py]\n{path.read_text().replace('{jsonl', '{hang_up: {}, jsonl')}")
    line = ["setsid", sys.executable, str(root / "run.py"), str(path)]
    completed = subprocess.run([sys.executable, "-c", code.format(line=line)], cwd=tmp_path, timeout=60, check=False)
    assert completed.returncode == 0
    assert len(records(tmp_path / "a.jsonl")) == 3


def test_a_native_crash_logs_the_stacks(root: Path, tmp_path: Path) -> None:
    plugin = "import faulthandler\nfrom streamkit import stage\n@stage('crash')\ndef crash(frame):\n"
    (tmp_path / "crash.py").write_text(f'{plugin}    """Crash."""\n    faulthandler._sigsegv()\n')
    path = write(tmp_path, "device: cpu\nplugins: [crash.py]\nsources: {a: 'test://?frames=3'}\nstages: {crash: {}}\n")
    completed = command(root, path)
    assert completed.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in completed.stderr
    assert f'File "{tmp_path}/crash.py", line 6 in crash' in completed.stderr


def test_a_profile_is_complete_after_ctrl_c(root: Path, tmp_path: Path) -> None:
    sources = "  street: {uri: samples/street.mp4, loop: true, pace: 20}"
    path = write(tmp_path, PIPELINE.format(sources=sources, out=tmp_path / "out"))
    profile = tmp_path / "new/folder/p.json"
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--profile", str(profile)]
    running = started_run(line, root, tmp_path)
    assert not profile.exists(), "it appears when it is whole"
    running.send_signal(signal.SIGINT)
    _, log = running.communicate(timeout=30)
    assert running.returncode == 130, log
    trace = json.loads(profile.read_text())
    assert {"decode", "wait for the pace", "detect.infer", "video"} <= {e["name"] for e in trace["traceEvents"]}
    assert f"profile: {profile}, " in log
    assert trace["otherData"]["limit"] == log.splitlines()[-1]
    assert not list(profile.parent.glob(".*"))


def test_watch_applies_edits_and_sigterm_drains(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    out = tmp_path / "out"
    camera = "{stage: test_pattern, uri: 'test://?width=64&height=48&frames=0', pace: realtime}"
    tail = f"stages: {{jsonl: {{path: '{out}/{{source}}.jsonl'}}}}\n"
    path.write_text(f"device: cpu\nsources: {{a: {camera}}}\n{tail}")
    completed = subprocess.Popen(
        [sys.executable, root / "run.py", path, "--watch", "--report", tmp_path / "r.json"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    lines: list[str] = []
    try:
        until = time.monotonic() + 90
        while not list(out.glob(".a.jsonl.part")) + list(out.glob("a.jsonl")) and time.monotonic() < until:
            time.sleep(0.05)
        path.write_text(f"device: cpu\nsources: {{a: {camera}, b: {camera}, b: {camera}}}\n{tail}")
        while "the key 'b' is here twice" not in (line := completed.stderr.readline()):
            assert line, lines
            lines.append(line)
        path.write_text(f"device: cpu\nsources: {{a: {camera}, b: {camera}}}\n{tail}")
        while "source b added" not in (line := completed.stderr.readline()):
            assert line, lines
            lines.append(line)
        while not list(out.glob(".b.jsonl.part")) + list(out.glob("b.jsonl")) and time.monotonic() < until:
            time.sleep(0.05)
        completed.send_signal(signal.SIGTERM)
        assert completed.wait(60) == 130
    finally:
        completed.kill()
        completed.stderr.close()
    report = json.loads((tmp_path / "r.json").read_text())
    for name in "ab":
        source = report["sources"][name]
        assert source["frames"] == source["out"] + sum(source["dropped"].values()) > 0
        assert len((out / f"{name}.jsonl").read_text().splitlines()) == source["out"]


MODULES = ("numpy", "streamkit.core.stage", "click", "yaml", "streamkit.config.graph")
CHECKS = (("check",), ("batch", "samples/street.mp4", "--out", "never", "--dry-run"))
# Ctrl-C comes when the import of a module begins, however fast the machine is. Before the command has started, it comes
# where Python drops an exception.
SIGNAL = """
import os, signal, sys

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(9):  # a handler runs between two steps of Python
            pass

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and hasattr(sys.modules.get("streamkit.cli"), "main"):
            os.kill(os.getpid(), signal.SIGINT)
        elif name == {module!r}:
            Dropped()

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("installed", [False, True], ids=["run.py", "streamkit"])
@pytest.mark.parametrize(
    ("words", "module"),
    [(words, module) for words in ((), *CHECKS) for module in MODULES]
    + [(words, "onnxruntime.capi") for words in CHECKS],  # there a run has its own handler soon, and says so
    ids=str,
)
def test_ctrl_c_during_imports_gives_only_an_exit_code(
    root: Path, tmp_path: Path, words: tuple[str, ...], module: str, installed: bool
) -> None:
    path = write(tmp_path, PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out"))
    begin = root / "run.py"
    if installed:
        begin = tmp_path / "streamkit"  # as pip writes it
        begin.write_text("import sys\nfrom streamkit.cli import main\nsys.exit(main())\n")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SIGNAL.format(module=module))
    line = [sys.executable, str(begin), *words[:1], str(path), *words[1:]]
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{root}"}
    completed = subprocess.run(line, cwd=root, env=environment, capture_output=True, text=True, timeout=60)
    assert (completed.returncode, completed.stderr) == (130, "")
