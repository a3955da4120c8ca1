"""Which batch sizes of a network are tuned, and when; a session on the CPU stands for that of a GPU."""

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import Context, RuntimeContext
from streamkit.core.tasks import Future
from streamkit.models.card import load_card
from streamkit.models.session import Session
from streamkit.stages.inference import infer as infer_module
from streamkit.stages.inference.infer import UNTUNED, Infer

ROOT = Path(__file__).resolve().parents[3]


class LaterFuture(Future):
    """Does its work when `finish` is called."""

    at_once = False
    made: list["LaterFuture"]

    def __init__(self, work):
        self._work, self.ready = work, False
        self.made.append(self)

    def finish(self):
        self._result, self.ready = self._work(lambda: False), True


class Bound:
    """An `IoBinding` of a CPU session that records its runs."""

    def __init__(self, session, rows):
        self._session, self.rows = session, rows

    def run(self, feeds):
        (name,) = feeds
        self.rows.append(len(feeds[name]))
        names = [one.name for one in self._session.get_outputs()]
        return dict(zip(names, self._session.run(names, feeds), strict=True))

    warm = run


class CpuSession(Session):
    """The session of a GPU, on the CPU."""

    def __init__(self, file, device, *, quick, **options):
        super().__init__(file, Device())
        self.rows, self._quick, self.warmed = [], quick, []
        self._gpu = None if quick else self._bind(self._session)

    def _bind(self, session):
        return Bound(session, self.rows)

    def warm(self, sizes, size, dropped=lambda: False):
        self.warmed.append(tuple(sizes))
        return super().warm(sizes, size, dropped)


@pytest.fixture
def opened(monkeypatch):
    """The demo network in a stage that tunes it beside its first frames, in batches of 1, 2 and 4."""
    monkeypatch.setattr(LaterFuture, "made", [], raising=False)
    monkeypatch.setattr(infer_module, "Session", CpuSession)
    monkeypatch.setattr(infer_module, "on_this_stream", lambda work, device: work)
    stage = Infer(model=load_card(ROOT / "models" / "demo.yaml"))
    runtime = RuntimeContext(future=LaterFuture)
    stage.context = Context("infer", Device("cuda"), (1, 2, 4), counters=Counters(), runtime=runtime)
    monkeypatch.setattr(infer_module, "check_model", lambda card: dataclasses.replace(card))
    stage.open()
    yield stage
    stage.close()


def batch(rows: int, images: int) -> Batch:
    """A batch of frames whose tensor has `rows` rows, of which `images` are not padding."""
    tensor = np.random.default_rng(rows).random((rows, 3, 384, 640), np.float32)
    return Batch([Frame("a", n, n / 30, 640, 384) for n in range(images)], tensor=tensor)


def test_the_largest_size_is_tuned_first_and_smaller_batches_run_as_it(opened):
    (tuned,) = LaterFuture.made
    expected = opened.process(batch(2, 2)).outputs
    assert opened.context.counters.values[UNTUNED] == 1
    tuned.finish()
    found = opened.process(batch(2, 2)).outputs
    session = opened._session
    assert (session.warmed, session.rows, session.padded) == ([(4,)], [4, 4], 1)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
        assert len(found[name]) == 2
    assert opened.context.counters.values[UNTUNED] == 1


def test_the_other_sizes_are_tuned_once_they_are_used(opened):
    LaterFuture.made[0].finish()
    for _ in range(25):
        opened.process(batch(4, 4))
    for _ in range(20):  # the end of a run has few
        opened.process(batch(1, 1))
    assert len(LaterFuture.made) == 1
    opened.process(batch(1, 1))
    opened.process(batch(1, 1))
    first, others = LaterFuture.made
    session = opened._session
    before = len(session.rows)
    others.finish()
    assert session.warmed == [(4,), (1, 2, 4)]
    assert session.rows[before:] == [2, 1]  # the largest is warm already
    padded = session.padded
    opened.process(batch(1, 1))
    assert (session.rows[-1], session.padded) == (1, padded)
    assert LaterFuture.made == [first, others]


def test_sizes_that_cannot_be_tuned_run_as_the_largest_one(opened, monkeypatch, caplog):
    LaterFuture.made[0].finish()
    for _ in range(21):
        opened.process(batch(1, 1))
    monkeypatch.setattr(opened._session, "_open", lambda: 1 / 0)
    with caplog.at_level(logging.WARNING):
        LaterFuture.made[1].finish()
    assert "infer: batches of 1, 2 run as 4: they could not be tuned: " in caplog.text
    opened.process(batch(1, 1))
    assert opened._session.rows[-1] == 4
    assert len(LaterFuture.made) == 2
