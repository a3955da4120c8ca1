"""A run that is stopped ends within seconds, whatever hangs, and closes its files."""

import json
import threading
import time

import pytest
from support.cameras import HOLD, pipeline, until

from streamkit.runtime import shutdown
from streamkit.runtime.shutdown import GRACE_S, Stopwatch, wait


def test_threads_that_end_are_waited_for_however_long():
    threads = [threading.Timer(0.3, lambda: None) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert wait(threads, Stopwatch()) == []
    assert not any(thread.is_alive() for thread in threads)


def test_what_hangs_is_left_behind_and_what_closes_a_file_is_not(monkeypatch):
    monkeypatch.setattr(shutdown, "DRAIN_S", 0.2)
    monkeypatch.setattr(shutdown, "GRACE_S", 0.4)
    over = threading.Event()
    hung = threading.Thread(target=over.wait, name="hung", daemon=True)
    closing = threading.Timer(1.0, lambda: None)
    closing.name = "closing"
    for thread in (hung, closing):
        thread.start()
    since, dropped = Stopwatch(), []
    since.start()
    left = wait([hung, closing], since, lambda: dropped.append(1), lambda thread: thread.name == "hung")
    assert left == [hung]
    assert not closing.is_alive()
    assert dropped == [1]
    over.set()
    hung.join()


@pytest.mark.alone
def test_a_live_pipeline_with_a_stage_and_a_camera_that_hang_ends_and_closes_its_files(tmp_path):
    HOLD.clear()
    running, said = pipeline(
        "sources: {a: {stage: camera}, stuck: {stage: camera, hangs: true}}\n"
        f"stages: {{jsonl: {{path: '{tmp_path}/a.jsonl', from: decode}}, "
        "slow: {hangs: true, from: decode, run: {instances: 1}}, note: {}}"
    )
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()), daemon=True)
    thread.start()
    until(lambda: running.ready and running.states["a"].frames > 20)
    begun = time.monotonic()
    running.stop()
    thread.join(60)
    assert codes == [130]
    assert time.monotonic() - begun < GRACE_S + 3  # for a machine that is busy
    assert any(text.startswith("stopping takes too long") for text in said)
    told = next(text for text in said if text.startswith("abandoned threads that hang: "))
    assert "slow/0" in told
    assert "source/stuck" in told
    assert "HOLD.wait(WAIT_S)" in told
    report = running.report(130)
    a = report["sources"]["a"]
    assert a["frames"] == a["out"] + sum(a["dropped"].values())
    written = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(written) == a["out"] > 0
    HOLD.set()
    until(lambda: not any(thread.is_alive() for thread in running.left_behind))
