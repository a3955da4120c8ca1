"""Latency is that of a pipeline below a camera: of frames when they are due, not of full queues."""

import contextlib

import cv2
import numpy as np

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.evaluate.latency import measure_latency

SLOW = """
import time
from streamkit import stage

@stage("slow")
def slow(frame):
    time.sleep(0.15)
"""


def measured(folder, text, limit=None):
    graph = build(read_text(text, folder=folder))
    return measure_latency(graph, lambda _: contextlib.nullcontext(), limit=limit)


def test_a_fast_pipeline_has_the_latency_of_its_stages(root):
    text = "sources: {a: {uri: samples/street.mp4, end: 0.5}}\nstages: {detect: {model: demo}, jsonl: {path: x.jsonl}}"
    latency = measured(root, text)
    assert (latency["source"], latency["frames"] + latency["dropped"]) == (
        "a",
        13,
    )  # some are dropped on a busy machine
    assert 5 < latency["p50_ms"] <= latency["p95_ms"] <= latency["p99_ms"]
    assert not (root / "x.jsonl").exists()


def test_frames_that_a_slow_pipeline_drops_are_counted(root, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    text = (
        f"plugins: [slow.py]\nbatch: {{max_latency: 300ms}}\nsources: {{a: {root}/samples/street.mp4}}\n"
        "stages: {slow: {}}"
    )
    latency = measured(tmp_path, text)
    assert latency["dropped"] > 20
    assert latency["frames"] + latency["dropped"] == 100  # 4 s
    assert latency["p50_ms"] > 150


def test_images_are_paced_at_ten_a_second(tmp_path):
    for number in range(3):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.zeros((64, 64, 3), np.uint8))
    latency = measured(tmp_path, f"sources: {{a: {tmp_path}}}\nstages: {{draw: {{}}}}", limit=2)
    assert latency["frames"] == 2
