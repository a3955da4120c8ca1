"""A run that is stopped ends within seconds, whatever hangs, and closes its files."""

import json
import threading
import time

import pytest
from support.cameras import HOLD, pipeline, until

from streamkit.runtime import shutdown
from streamkit.runtime.shutdown import GRACE_S, wait


def test_ending_threads_are_joined_without_a_time_limit():
    threads = [threading.Timer(0.3, lambda: None) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert wait(threads, lambda: None) == []
    assert not any(thread.is_alive() for thread in threads)


def test_hanging_threads_are_abandoned_except_those_that_close_files(monkeypatch):
    monkeypatch.setattr(shutdown, "DRAIN_S", 0.2)
    monkeypatch.setattr(shutdown, "GRACE_S", 0.4)
    over = threading.Event()
    hung = threading.Thread(target=over.wait, name="hung", daemon=True)
    closing = threading.Timer(1.0, lambda: None)
    closing.name = "closing"
    for thread in (hung, closing):
        thread.start()
    start_s = time.monotonic()
    dropped = []
    left = wait([hung, closing], lambda: start_s, lambda: dropped.append(1), lambda thread: thread.name == "hung")
    assert left == [hung]
    assert not closing.is_alive()
    assert dropped == [1]
    over.set()
    hung.join()


@pytest.mark.parametrize(
    ("since_s", "drops", "left"),
    [(None, 0, False), (3.9, 0, False), (4.1, 1, False), (4.9, 1, False), (5.1, 1, True)],
)
def test_frames_drain_for_four_seconds_and_hanging_calls_are_abandoned_after_five(since_s, drops, left, monkeypatch):
    monkeypatch.setattr(shutdown, "_POLL_S", 0.01)
    over = threading.Event()
    looks = []
    dropped = []
    hung = threading.Thread(target=over.wait, daemon=True)
    hung.start()

    def stopped_at_s():
        looks.append(1)
        if len(looks) > 3:
            over.set()
        return None if since_s is None else time.monotonic() - since_s

    hanging = wait([hung], stopped_at_s, lambda: dropped.append(1))
    over.set()
    hung.join()
    assert len(dropped) == drops
    assert hanging == ([hung] if left else [])


def test_a_live_pipeline_with_hanging_stage_and_camera_ends_and_closes_its_files(tmp_path):
    HOLD.clear()
    running, logged = pipeline(
        "sources: {a: {stage: camera}, stuck: {stage: camera, hangs: true}}\n"
        f"stages: {{jsonl: {{path: '{tmp_path}/a.jsonl', from: decode}}, "
        "slow: {hangs: true, from: decode, run: {instances: 1}}, note: {}}"
    )
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()), daemon=True)
    thread.start()
    until(lambda: running.ready and running.states["a"].frames > 20)
    stop_s = time.monotonic()
    running.stop()
    thread.join(60)
    assert codes == [130]
    assert time.monotonic() - stop_s < GRACE_S + 15  # for a machine that is busy; a hung run lasts WAIT_S
    assert any(text.startswith("shutdown takes too long") for text in logged)
    message = next(text for text in logged if text.startswith("abandoned threads that hang: "))
    assert "slow/0" in message
    assert "source/stuck" in message
    assert "HOLD.wait(WAIT_S)" in message
    report = running.report(130)
    a = report["sources"]["a"]
    assert a["frames"] == a["out"] + sum(a["dropped"].values())
    written = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(written) == a["out"] > 0
    HOLD.set()
    until(lambda: not any(thread.is_alive() for thread in running.hung_threads))
