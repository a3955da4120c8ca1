"""What every test may use: the folder of test data, and the skipping of what this machine cannot run."""

import contextlib
import gc
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from support import hung, together
from support.commands import run_here
from support.datasets import data_folder
from support.messages import collect, stop_collecting
from support.ray_nodes import pytest_runtest_teardown, ray_nodes  # noqa: F401  hook, fixture
from support.receivers import rtmp_receiver, rtsp_receiver, uploads  # noqa: F401  fixtures
from support.rtsp import proxy, rtsp, rtsp_there  # noqa: F401  fixtures
from support.together import (  # noqa: F401  hooks
    pytest_cmdline_main,
    pytest_runtest_protocol,
    pytest_unconfigure,
    pytest_xdist_make_scheduler,
)
from support.vlm_endpoint import vlm  # noqa: F401  fixture

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Frame
from streamkit.core.logs import FORMAT_VARIABLE, LEVEL_VARIABLE
from streamkit.core.records import record
from streamkit.core.stage import Collecting, Sink, Stage, default_registry, stage
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig

with contextlib.suppress(ImportError):  # without aiosmtpd, only the tests of mails are missing
    from support.smtp import mail_server, mail_tls  # noqa: F401  fixtures

ROOT = Path(__file__).resolve().parents[1]

# The same cases in every run, so that red means that a change is wrong; to search for new ones:
# python -m pytest --hypothesis-profile search
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None)
settings.load_profile("same")


def _gpu_missing() -> str | None:
    """Why there is no GPU to test on, or None."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # any failure means the same: no GPU here
        return f"no GPU: {type(error).__name__}: {error}"
    return None


def pytest_configure(config: pytest.Config) -> None:
    logging.getLogger().setLevel(logging.INFO)  # pytest's `log_level` sets it six times a test, which takes 1 ms
    together.pytest_configure(config)
    config.pluginmanager.register(hung)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if " at 0x" in item.nodeid:  # each process of a run in parallel has another address
            raise pytest.UsageError(f"{item.nodeid}: give the parameters ids that are the same in each process")
    gpu_items = [item for item in items if "gpu" in item.keywords]
    reason = _gpu_missing() if gpu_items else None
    for item in gpu_items if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))
    together.pytest_collection_modifyitems(config, items)


def pytest_collectstart() -> None:
    gc.disable()  # it would search the growing tests again and again, a tenth of the time of their collection


def pytest_collection_finish() -> None:
    """Leave the tests themselves, a million objects, out of every garbage collection: each full one takes 0.3 s."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _signals_reach_children() -> None:
    """Take signals again that who started the tests ignores, as `nohup` does: child processes would ignore them too."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def _separate_choices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the choices of the tests apart from the user's, and let networks run in f32 on a GPU, as the CPU does.

    The choice is in the user's cache, so the tests have a separate one, which leads to what the user's has compiled.
    """
    before = os.environ.get("XDG_CACHE_HOME")
    folder = tmp_path_factory.mktemp("cache")
    compiled = Path(before or Path.home() / ".cache") / "streamkit"
    (folder / "streamkit").mkdir()
    for compiled_file in compiled.iterdir() if compiled.is_dir() else ():
        if compiled_file.name not in ("arithmetic", "models"):
            (folder / "streamkit" / compiled_file.name).symlink_to(compiled_file)
    os.environ["XDG_CACHE_HOME"] = str(folder)
    if _gpu_missing() is None:
        from support.f32_choices import write_f32_choices

        write_f32_choices(ROOT, data_folder())
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="session")
def test_data() -> Path:
    folder = data_folder()
    if folder is None:
        pytest.skip("no test data: set STREAMKIT_TEST_DATA to the folder with models/ and videos/")
    return folder


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run the command in this process, which is there already: for what it says and writes, and its exit code.

    Call it with the words behind `run.py` and the folder `cwd`. What is of a process, such as signals, needs one.
    """

    def call(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
        capfd.readouterr()
        code = run_here(monkeypatch, *words, cwd=cwd)
        return subprocess.CompletedProcess(words, code, *capfd.readouterr())

    return call


def _log_levels() -> dict[str, int]:
    loggers = {
        name: logger for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)
    }
    return {name: logger.level for name, logger in loggers.items() if name.startswith(("streamkit", "uvicorn"))}


@pytest.fixture(autouse=True)
def _messages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End what `support.messages.collect` began, and undo `--log-level` and `--log-format` of commands run here."""
    before = _log_levels()
    for name in (FORMAT_VARIABLE, LEVEL_VARIABLE):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    yield
    stop_collecting()
    for name, level in _log_levels().items():
        if level != before.get(name, logging.NOTSET):  # setting a level clears the caches of all loggers
            logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Undo changed handlers of signals; fail a test that leaves them blocked or ignored: its processes inherit that."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    changed = {number: signal.getsignal(number) for number in before if signal.getsignal(number) != before[number]}
    for number in changed:
        signal.signal(number, before[number])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert signal.SIG_IGN not in changed.values()


@pytest.fixture(autouse=True)
def _scheduling() -> Iterator[None]:
    """Undo what libsvtav1 does as root: it gives the thread that opens it real-time priority over all processes."""
    before = os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None
    yield
    if before is not None and os.sched_getscheduler(0) != before:
        os.sched_setscheduler(0, before, os.sched_param(0))


@dataclass
class Outcome:
    """What a run gave: its exit code, its report, and every frame's record by source, in order of arrival."""

    code: int
    report: dict[str, Any]
    records: dict[str, list[dict[str, Any]]]
    logged: list[str]

    def boxes(self, source: str) -> list[tuple[int, np.ndarray]]:
        """(frame index, (n, 6) array of x1 y1 x2 y2 score class) of each record."""
        rows = []
        for frame_record in self.records[source]:
            box_rows = [[*o["box"], o["score"], o["class_id"]] for o in frame_record["objects"]]
            rows.append((frame_record["frame"], np.array(box_rows, np.float64).reshape(-1, 6)))
        return rows


@pytest.fixture
def run_pipeline(root: Path) -> Callable[..., Outcome]:
    """Run a pipeline given as YAML text; its frames' records are collected by a sink named `collect`."""

    def run(text: str, *, device: str = "cpu", extra: Sequence[type[Stage]] = (), limit: int | None = None) -> Outcome:
        records: dict[str, list[dict[str, Any]]] = {}
        registry = default_registry()
        with Collecting(registry):

            @stage("collect")
            class Collect(Sink):
                """Keep every record."""

                def write(self, frame: Frame) -> None:
                    records.setdefault(frame.source, []).append(record(frame))

        for kind in extra:
            registry.add(kind)
        config = read_text(text, folder=root, registry=registry)
        logged = collect()
        running = PipelineRun(build(config), choose(device), RunConfig(limit=limit))
        code = running.run()
        return Outcome(code, running.report(code), records, logged)

    return run
