"""NVDEC sessions that spare processes make ahead."""

from types import SimpleNamespace

import pytest

from streamkit.media.gpu_figures import FIRST_GUESSES, GpuFigure
from streamkit.media.nv_sessions import SessionKey, SessionSample
from streamkit.runtime.multiprocess import messages, spare_sessions
from streamkit.runtime.multiprocess.spare_sessions import SpareSessions, peak_session_demand
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle

KEY = SessionKey(0, "hevc", 1920, 1080, 420, 8, low_delay=False, parameters=b"sps")
LARGE = KEY._replace(width=3840, height=2160)


def test_a_spare_process_needs_the_peak_sessions_of_any_process() -> None:
    sessions_by_worker = [
        {KEY: SessionSample(KEY, b"key frame", 5), LARGE: SessionSample(LARGE, b"large", 1)},
        {KEY: SessionSample(KEY, b"key frame", 4), LARGE: SessionSample(LARGE, b"large", 2)},
        {},
    ]
    demand = [SessionSample(KEY, b"key frame", 5), SessionSample(LARGE, b"large", 2)]
    assert peak_session_demand(sessions_by_worker, 9) == demand
    assert peak_session_demand(sessions_by_worker, 6) == [demand[0], demand[1]._replace(number=1)]
    assert peak_session_demand(sessions_by_worker, 5) == demand[:1]
    assert peak_session_demand(sessions_by_worker, 0) == peak_session_demand(sessions_by_worker, -9) == []


class Rig:
    """A process with sources and a spare one, a clock, and the sessions that were ordered."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.orders: list[messages.Order] = []
        self.worker = WorkerHandle(device="cpu", number=0)
        self.spare = WorkerHandle(
            device="cpu",
            number=1,
            spare=True,
            expected_live=3,
            ready=True,
            child=SimpleNamespace(send=self.orders.append),
        )
        self.sessions = SpareSessions([self.worker, self.spare], lambda: self.now_s)

    def use(self, number: int, packet: bytes = b"") -> None:
        """Let the process use so many sessions."""
        self.sessions.update(self.worker, [SessionSample(KEY, packet, number)])

    def ordered_after(self, seconds: float) -> list[int]:
        """The numbers of sessions that are ordered in a time."""
        before = len(self.orders)
        self.now_s += seconds
        self.sessions.keep_ready()
        self.sessions.keep_ready()
        new = self.orders[before:]
        assert all(isinstance(order, messages.MakeSessions) for order in new)
        return [sample.number for order in new for sample in order.samples]  # type: ignore[union-attr]


def test_sessions_are_prepared_once_those_in_use_are_stable() -> None:
    rig = Rig()
    assert rig.ordered_after(100.0) == []  # none are in use
    rig.use(1, b"key frame")
    rig.use(4)
    assert rig.ordered_after(4.9) == []
    assert rig.ordered_after(0.2) == [3]  # as many as it may get
    assert rig.orders == [messages.MakeSessions([SessionSample(KEY, b"key frame", 3)])]


def test_sessions_are_prepared_although_a_camera_keeps_reconnecting() -> None:
    rig = Rig()
    rig.use(3, b"key frame")
    ordered = []
    for _ in range(15):
        rig.use(3)
        ordered += rig.ordered_after(4.0)
    assert ordered == [3]


def test_sessions_needed_by_sources_are_not_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_sessions, "figures_of", lambda device: {**FIRST_GUESSES, "sessions": GpuFigure(22.0)})
    rig = Rig()
    rig.use(5, b"key frame")
    assert rig.ordered_after(5.1) == [1]
    rig.use(4)
    assert rig.ordered_after(5.1) == [2]


def test_sessions_of_spare_processes_are_counted_until_these_get_sources() -> None:
    rig = Rig()
    rig.use(5, b"key frame")
    rig.spare.sessions_ahead = 2
    assert (rig.sessions.ahead, rig.sessions.open_sessions) == (2, 7)
    rig.spare.spare = False
    assert (rig.sessions.ahead, rig.sessions.open_sessions) == (0, 5)
