"""What a run says on stderr where it is no terminal, and on one."""

import time
from types import SimpleNamespace

import pytest

from streamkit.cli import progress
from streamkit.cli.progress import Display


def report(**changes):
    return {
        "frames": 1000,
        "seconds": 4.0,
        "frames_per_s": 250.0,
        "device": "cpu",
        "detections": {},
        "events": {},
        "counts": {},
        "stages": {},
        "latency": {},
        "sources": {"a": {"frames": 1000}},
        **changes,
    }


def summary_lines(capsys, verbose=False, **changes) -> list[str]:
    Display().summary(report(**changes), verbose)
    captured = capsys.readouterr()
    assert captured.out == ""  # standard output is the pipeline's own
    return captured.err.splitlines()


def test_a_summary_without_objects_has_a_single_line(capsys):
    assert summary_lines(capsys) == ["1000 frames in 4.0 s, 250.0 a second, on cpu"]
    assert summary_lines(capsys, frames=0, seconds=0.0, frames_per_s=None) == ["0 frames in 0.0 s, on cpu"]


def test_a_summary_shows_every_fact(capsys):
    lines = summary_lines(
        capsys,
        detections={"detect": 12345},
        events={"crossed": 3},
        counts={"frames failed": 2, "boxes removed: size": 1},
        verbose=True,
        stages={"detect.infer": {"frames": 10, "seconds": 1.239}, "unused": {"frames": 0, "seconds": 0.0}},
        latency={"jsonl": {"p50_ms": 12.4, "p95_ms": 20.0, "p99_ms": 31.6}},
        sources={"a": {"frames": 1}, "b": {"frames": 0, "error": "no such file"}, "c": {"frames": 2}},
    )
    assert lines[1:] == [
        "detections: detect 12,345",
        "events: crossed 3",
        "counts: frames failed 2, boxes removed: size 1",
        "seconds by stage, of all threads: detect.infer 1.24",
        "latency at jsonl: p50 12 ms, p95 20 ms, p99 32 ms",
        "1 of 3 sources failed: b",
    ]


def test_a_detector_without_any_object_has_a_hint(capsys):
    lines = summary_lines(capsys, detections={"detect": 0, "plates": 0})
    assert lines[1] == "detections: detect 0, plates 0"
    assert lines[2].startswith("detect and plates found no object in 1,000 frames; if there are some, run the network")
    assert "found no object" not in "".join(summary_lines(capsys, detections={"detect": 1}))
    assert "found no object" not in "".join(summary_lines(capsys, detections={"detect": 0}, frames=0))


def test_the_last_line_says_what_was_found(capsys):
    labels = {"detect": {"person": 310, "car": 1204, "bus": 2, "sheep": 1}, "plates": {"bench": 2, "sheep": 1, "tv": 1}}
    lines = summary_lines(
        capsys,
        detections={"detect": 1517},
        labels=labels,
        stages={"door": {"frames": 1000, "seconds": 0.0}, "yard": {"frames": 1000, "seconds": 0.0}},
        events_by_stage={"door": {"crossed": 12}, "yard": {"entered": 3, "left": 1}, "decode": {"started": 40}},
    )
    assert lines[-1] == (
        "found 1,204 cars, 310 persons, 2 buses, 2 sheep, 2 benches, 1 other in 1,000 frames (an object counts in each "
        "frame); 12 crossed door, 3 entered yard, 1 left yard"
    )
    assert summary_lines(capsys, labels={}, events_by_stage={})[1:] == []


@pytest.mark.parametrize(("unsure", "objects", "hint"), [(11, 20, True), (10, 20, False), (19, 19, False)])
def test_scores_just_above_the_threshold_have_a_hint(unsure, objects, hint, capsys):
    lines = summary_lines(capsys, detections={"detect": objects}, unsure={"detect": unsure})
    assert ("most objects of detect have a score just above min_score" in lines[-1]) is hint


def test_objects_removed_by_thresholds_are_shown_with_verbose(capsys):
    counts = {"frames failed": 2, "boxes removed: min_score": 8_014_295}
    assert summary_lines(capsys, counts=counts)[1:] == ["counts: frames failed 2"]
    assert summary_lines(capsys, counts=counts, verbose=True)[1:] == [
        "counts: frames failed 2, boxes removed: min_score 8,014,295"
    ]
    assert summary_lines(capsys, counts={"boxes removed: min_score": 3})[1:] == []


def test_the_summary_names_the_outputs(capsys):
    assert summary_lines(capsys, outputs=["out/a.mp4", "out/a.jsonl"])[1:] == ["outputs: out/a.mp4, out/a.jsonl"]
    many = [f"out/{n}.mp4" for n in range(12)]
    assert summary_lines(capsys, outputs=many)[1:] == [f"outputs: {', '.join(many[:10])} and 2 more"]
    assert summary_lines(capsys, outputs=many[:10])[1:] == [f"outputs: {', '.join(many[:10])}"]
    assert summary_lines(capsys, outputs=[])[1:] == []


def state(frames=3, done=False, expected=None):
    return SimpleNamespace(frames=frames, done=done, facts={} if expected is None else {"expected_frames": expected})


@pytest.mark.parametrize(
    ("states", "limit", "line"),
    [
        ([state(expected=400)], None, "3 of 400 frames done, 0 of 1 sources ended"),
        ([state(expected=4000)], None, "3 of 4,000 frames done, 0 of 1 sources ended"),
        ([state(expected=400)], 100, "3 of 100 frames done, 0 of 1 sources ended"),
        ([state(expected=50)], 100, "3 of 50 frames done, 0 of 1 sources ended"),
        ([state()], 100, "3 of 100 frames done, 0 of 1 sources ended"),
        ([state()], None, "3 frames done, 0 of 1 sources ended"),
        ([state(expected=2)], None, "3 frames done, 0 of 1 sources ended"),  # an estimate that was too low
        ([state(expected=3)], None, "3 of 3 frames done, 0 of 1 sources ended"),
        ([state(expected=400), state()], None, "3 frames done, 0 of 2 sources ended"),
        (
            [state(expected=4), state(frames=7, done=True, expected=9)],
            None,
            "3 of 11 frames done, 1 of 2 sources ended",
        ),
        ([], None, "3 frames done, 0 of 0 sources ended"),
    ],
)
def test_plain_lines_have_the_total_if_known(states, limit, line):
    running = SimpleNamespace(frames=3, states=dict(enumerate(states)), limit=limit, opening=[])
    assert progress._line(running).startswith(line)


@pytest.mark.parametrize("text", ["plain", "a [bold]tag[/bold] stays", "[red]"])
def test_markup_in_text_is_not_interpreted(text, capsys):
    Display().log(text)
    assert capsys.readouterr().err == f"{text}\n"


def running(frames=7):
    states = {"a": SimpleNamespace(frames=7, done=True), "b": SimpleNamespace(frames=3, done=False)}
    return SimpleNamespace(frames=frames, states=states, limit=None, opening=[])


def test_plain_lines_show_the_progress(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_EVERY_S", 0.01)
    output = ""
    with Display().watching(running()):
        until = time.monotonic() + 30
        while "\n" not in output and time.monotonic() < until:
            time.sleep(0.01)
            output += capsys.readouterr().err
    output += capsys.readouterr().err
    assert set(output.splitlines()) == {"7 frames done, 1 of 2 sources ended"}
    time.sleep(0.03)
    assert capsys.readouterr().err == ""  # over with the run


def test_a_short_run_shows_no_progress(capsys):
    with Display().watching(running()):
        pass
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_bars(capsys):
    from rich.console import Console

    display = Display()
    display.console = Console(stderr=True, force_terminal=True, width=100, highlight=False)
    with display.watching(running()):
        display.log("note [x]")
        text = ""
        until = time.monotonic() + 30
        while "3 frames" not in text and time.monotonic() < until:
            time.sleep(0.02)
            text += capsys.readouterr().err
    text += capsys.readouterr().err
    assert "note [x]" in text
    assert "7 of 7 frames" in text
    assert "3 frames" in text


EVIL = "car\x1b]0;x\x07\n[red]gate: fine\x9b2J\u202e"
SEEN = r"car\x1b]0;x\x07\n[red]gate: fine\x9b2J\u202e"


def test_control_characters_and_line_breaks_of_labels_and_ids_are_escaped(capsys):
    lines = summary_lines(
        capsys,
        detections={EVIL: 1},
        events={EVIL: 2},
        counts={EVIL: 3},
        stages={EVIL: {"frames": 1, "seconds": 1.0}},
        latency={EVIL: {"p50_ms": 1.0}},
        sources={EVIL: {"frames": 1, "error": "x"}},
    )
    assert lines[1:] == [
        f"detections: {SEEN} 1",
        f"events: {SEEN} 2",
        f"counts: {SEEN} 3",
        f"seconds by stage, of all threads: {SEEN} 1.00",
        f"latency at {SEEN}: p50 1 ms",
        f"1 of 1 sources failed: {SEEN}",
    ]


def test_control_characters_of_messages_are_escaped(capsys):
    Display().log("a\x1b[31m\u2066b\nc")
    assert capsys.readouterr().err == "a\\x1b[31m\\u2066b\nc\n"


def test_bars_show_ids_literally(monkeypatch, capsys):
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    display = Display()
    display.console._force_terminal = True
    states = {"[red]cam\x1b[2J\n\x9b1m": SimpleNamespace(frames=7, done=True)}
    with display.watching(SimpleNamespace(frames=7, states=states, limit=None, opening=[])):
        time.sleep(0.5)
    output = capsys.readouterr().err
    assert r"[red]cam\x1b[2J\n\x9b1m" in output
    assert "\x1b[2J" not in output
    assert "\x9b" not in output


def test_slow_steps_before_the_first_frame_are_shown(capsys):
    from rich.console import Console

    states = {"a": SimpleNamespace(frames=0, done=False)}
    running = SimpleNamespace(frames=0, states=states, limit=None, opening=["track", "detect"])
    assert progress._line(running) == "0 frames done, 0 of 1 sources ended; opening track, detect"
    display = Display()
    display.console = Console(stderr=True, force_terminal=True, width=100, highlight=False)
    with display.watching(running):
        text = ""
        until = time.monotonic() + 30
        while "opening track, detect" not in text and time.monotonic() < until:
            time.sleep(0.02)
            text += capsys.readouterr().err
        assert "opening track, detect" in text
        running.opening = []
        states["a"].frames = 7
        capsys.readouterr()
        text = ""
        while "7 frames" not in text and time.monotonic() < until:
            time.sleep(0.02)
            text += capsys.readouterr().err
        time.sleep(0.3)
        capsys.readouterr()
        time.sleep(0.3)
        assert "opening" not in capsys.readouterr().err
