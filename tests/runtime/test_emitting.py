"""The end of a run with an emitter: as long as something is taken it is waited for."""

import time
from types import SimpleNamespace

from streamkit.runtime.emitting import _drain


class Sent:
    """A sender that gets on by one each time that it is looked at, and has `more` before the spool is empty."""

    hopeful, draining = True, False

    def __init__(self, more, steps):
        self.more, self.steps, self._delivered = more, steps, 0

    @property
    def delivered(self):
        self.more -= 1
        self._delivered += self._delivered < self.steps
        return self._delivered


class Waiting:
    acknowledged = 0

    def __init__(self, sender):
        self._sender = sender

    @property
    def waiting(self):
        return max(0, self._sender.more)


def ended(more, steps, drain):
    sender = Sent(more, steps)
    before_s = time.monotonic()
    _drain(SimpleNamespace(sender=sender, queue=Waiting(sender), drain=drain))
    assert sender.draining
    return sender.more, time.monotonic() - before_s


def test_what_a_client_takes_and_holds_back_counts_as_taken():
    """Each step comes in time, and all of them take longer than `drain`; nothing is acknowledged before the last."""
    more, took_s = ended(40, 10**9, 0.3)
    assert more <= 0
    assert took_s > 0.3


def test_where_nothing_is_taken_any_more_the_rest_is_left():
    more, _ = ended(10**9, 3, 0.1)
    assert more > 0
