"""Which batch sizes of a network are tuned, and when; a session on the CPU stands for that of a GPU."""

import logging
from pathlib import Path

import numpy as np
import pytest
from support.tuned_sessions import CpuSession

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import Context, RuntimeContext
from streamkit.core.tasks import Future
from streamkit.models.card import load_card
from streamkit.stages.inference import infer as infer_module
from streamkit.stages.inference.infer import UNTUNED, Infer

ROOT = Path(__file__).resolve().parents[3]


class LaterFuture(Future):
    """Does its work when `finish` is called."""

    at_once = False
    held = True
    instances: list["LaterFuture"]

    def __init__(self, work):
        self._work = work
        self.ready = False
        self.instances.append(self)

    def finish(self):
        self._result = self._work(lambda: False)
        self.ready = True


def begin(monkeypatch, *, held=True) -> Infer:
    """The demo network in a stage that tunes it beside its first frames, in batches of 1, 2 and 4."""
    monkeypatch.setattr(LaterFuture, "instances", [], raising=False)
    monkeypatch.setattr(LaterFuture, "held", held)
    monkeypatch.setattr(infer_module, "Session", CpuSession)
    monkeypatch.setattr(infer_module, "on_this_stream", lambda work, device: work)
    stage = Infer(model=load_card(ROOT / "models" / "demo.yaml"), precision="f32")
    runtime = RuntimeContext(future=LaterFuture)
    stage.context = Context("infer", Device("cuda"), (1, 2, 4), counters=Counters(), runtime=runtime)
    stage.open()
    return stage


@pytest.fixture
def opened(monkeypatch):
    """Such a stage in a run of files."""
    stage = begin(monkeypatch)
    yield stage
    stage.close()


@pytest.fixture
def clock(monkeypatch):
    """The stage's monotonic time in seconds, as the only item."""
    now_s = [100.0]
    monkeypatch.setattr(infer_module.time, "monotonic", lambda: now_s[0])
    return now_s


def batch(rows: int, images: int) -> Batch:
    """A batch of frames whose tensor has `rows` rows, of which `images` are not padding."""
    tensor = np.random.default_rng(rows).random((rows, 3, 384, 640), np.float32)
    return Batch([Frame("a", n, n / 30, 640, 384) for n in range(images)], tensor=tensor)


def untuned(stage: Infer) -> int:
    return stage.context.counters.values[UNTUNED]


def test_files_tune_the_largest_size_and_pad_smaller_batches(opened):
    (tuned,) = LaterFuture.instances
    expected = opened.process(batch(2, 2)).outputs
    assert untuned(opened) == 1
    tuned.finish()
    outputs = opened.process(batch(2, 2)).outputs
    session = opened._session
    assert (session.warmed, session.rows) == ([(4,)], [4, 4])
    assert outputs.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(outputs[name], value, rtol=1e-4, atol=1e-4)
        assert len(outputs[name]) == 2
    opened.process(batch(4, 4))
    assert untuned(opened) == 2
    opened.process(batch(4, 4))
    assert untuned(opened) == 2  # the largest size is tuned


def test_a_few_cameras_tune_every_size(monkeypatch):
    stage = begin(monkeypatch, held=False)
    LaterFuture.instances[0].finish()
    for _ in range(2):
        stage.process(batch(1, 1))
    assert (stage._session.warmed, stage._session.rows) == ([(1, 2, 4)], [4, 2, 1, 1, 1])
    assert untuned(stage) == 0
    stage.close()


def test_recurring_sizes_are_tuned(opened, clock):
    LaterFuture.instances[0].finish()
    opened.process(batch(1, 1))
    for pause_s in (4.0, 4.0, 0.9, 0.9, 0.9, 0.9, 0.9, 0.4):  # a pause of more than 1 s restarts the 5 s
        clock[0] += pause_s
        opened.process(batch(1, 1))
        assert len(LaterFuture.instances) == 1
    opened.process(batch(1, 1))
    clock[0] += 0.5
    opened.process(batch(1, 1))
    opened.process(batch(1, 1))
    opened.process(batch(4, 4))
    first, others = LaterFuture.instances
    session = opened._session
    before = len(opened._session.rows)
    others.finish()
    assert session.warmed == [(4,), (1, 2, 4)]
    assert session.rows[before:] == [2, 1]  # the largest is warm already
    counted = untuned(opened)
    for _ in range(2):
        opened.process(batch(1, 1))
    assert session.rows[-2:] == [1, 1]
    assert untuned(opened) == counted
    assert LaterFuture.instances == [first, others]


def test_sizes_that_cannot_be_tuned_run_untuned(opened, clock, monkeypatch, caplog):
    LaterFuture.instances[0].finish()
    for _ in range(10):
        opened.process(batch(1, 1))
        clock[0] += 0.9
    monkeypatch.setattr(opened._session, "_open", lambda: 1 / 0)
    with caplog.at_level(logging.WARNING):
        LaterFuture.instances[1].finish()
    assert "infer: batches of 1, 2 run slower than they could: the network could not be tuned for them: " in caplog.text
    opened.process(batch(1, 1))
    assert opened._session.rows[-1] == 4
    assert len(LaterFuture.instances) == 2
    counted = untuned(opened)
    opened.process(batch(1, 1))
    assert untuned(opened) == counted  # no tuning is under way


def test_runs_of_a_batch_are_joined_row_by_row(monkeypatch):
    stage = begin(monkeypatch)
    stage._sizes = (2, 8)
    images = batch(4, 4)
    tensor = images.tensor

    def run(feeds):
        ((_, part),) = [(name, array) for name, array in feeds.items() if array.ndim == 4]
        return {"means": part.mean((1, 2, 3)), "priors": np.arange(10.0).reshape(5, 2), "scale": np.array(2.0)}

    monkeypatch.setattr(stage._session, "run", run)
    outputs = stage.process(images).outputs
    np.testing.assert_array_equal(outputs["means"], tensor.mean((1, 2, 3)))
    assert outputs["priors"].tolist() == np.arange(10.0).reshape(5, 2).tolist()
    assert outputs["scale"] == 2.0
    stage.close()
