"""What a run says on stderr where it is no terminal, and on one."""

import time
from types import SimpleNamespace

import pytest

from streamkit import progress
from streamkit.progress import Display


def report(**changes):
    return {
        "frames": 1000, "seconds": 4.0, "frames_per_s": 250.0, "device": "cpu", "detections": {}, "events": {},
        "counts": {}, "stages": {}, "latency": {}, "sources": {"a": {"frames": 1000}}, **changes,
    }  # fmt: skip


def told(capsys, **changes) -> list[str]:
    Display().summary(report(**changes))
    captured = capsys.readouterr()
    assert captured.out == ""  # standard output is the pipeline's own
    return captured.err.splitlines()


def test_a_summary_of_little(capsys):
    assert told(capsys) == ["1000 frames in 4.0 s, 250.0 a second, on cpu"]
    assert told(capsys, frames=0, seconds=0.0, frames_per_s=None) == ["0 frames in 0.0 s, on cpu"]


def test_a_summary_of_all(capsys):
    lines = told(
        capsys,
        detections={"detect": 12345},
        events={"crossed": 3},
        counts={"frames failed": 2, "boxes removed: size": 1},
        stages={"detect.infer": {"frames": 10, "seconds": 1.239}, "unused": {"frames": 0, "seconds": 0.0}},
        latency={"jsonl": {"p50_ms": 12.4, "p95_ms": 20.0, "p99_ms": 31.6}},
        sources={"a": {"frames": 1}, "b": {"frames": 0, "error": "no such file"}, "c": {"frames": 2}},
    )
    assert lines[1:] == [
        "detections: detect 12,345",
        "events: crossed 3",
        "counts: frames failed 2, boxes removed: size 1",
        "seconds by stage: detect.infer 1.24",
        "latency at jsonl: p50 12 ms, p95 20 ms, p99 32 ms",
        "1 of 3 sources failed: b",
    ]


@pytest.mark.parametrize("text", ["plain", "a [bold]tag[/bold] stays", "[red]"])
def test_text_is_shown_as_it_is(text, capsys):
    Display().say(text)
    Display().error(text)
    assert capsys.readouterr().err == f"{text}\n" * 2


def running(frames=7):
    states = {"a": SimpleNamespace(frames=7, done=True), "b": SimpleNamespace(frames=3, done=False)}
    return SimpleNamespace(frames=frames, states=states, limit=None)


def test_plain_lines_tell_how_far_it_is(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    said = ""
    with Display().watching(running()):
        until = time.monotonic() + 30
        while "\n" not in said and time.monotonic() < until:
            time.sleep(0.01)
            said += capsys.readouterr().err
    said += capsys.readouterr().err
    assert set(said.splitlines()) == {"7 frames done, 1 of 2 sources ended"}
    time.sleep(0.03)
    assert capsys.readouterr().err == ""  # over with the run


def test_a_short_run_says_nothing_on_the_way(capsys):
    with Display().watching(running()):
        pass
    assert capsys.readouterr().err == ""


def test_bars_on_a_terminal(capsys):
    from rich.console import Console

    display = Display()
    display.console = Console(stderr=True, force_terminal=True, width=100, highlight=False)
    with display.watching(running()):
        display.say("note [x]")
        text, until = "", time.monotonic() + 30
        while "3 frames" not in text and time.monotonic() < until:
            time.sleep(0.02)
            text += capsys.readouterr().err
    text += capsys.readouterr().err
    assert "note [x]" in text
    assert "7 frames" in text
    assert "3 frames" in text
