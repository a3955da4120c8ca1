"""A clock that a test moves."""

from types import ModuleType

import pytest


class FakeClock:
    """Takes the place of the module `time`, or of a function that returns seconds; a sleep moves it on."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    monotonic = __call__

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def fake_time(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType, now_s: float = 1000.0) -> FakeClock:
    """Let these modules read one clock in place of the module `time`."""
    clock = FakeClock(now_s)
    for module in modules:
        monkeypatch.setattr(module, "time", clock)
    return clock
