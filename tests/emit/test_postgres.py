"""How long PostgreSQL may give no answer. `test_tables.py` has what is written to a real one."""

from types import SimpleNamespace

import pytest

from streamkit.emit import client
from streamkit.emit.client import SendError
from streamkit.stages.sinks.brokers.postgres import PostgresClient


class Statement:
    """A statement that psycopg works on, as `_limited` sees it, at a time that the test sets."""

    def __init__(self, monkeypatch, *, timeout_s):
        self.now_s = 100.0
        self.sent = []
        self.client = SimpleNamespace(timeout_s=timeout_s, over=lambda: False)
        monkeypatch.setattr(client, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.steps = PostgresClient._limited(self.client, self.work())
        assert next(self.steps) == "state 0"

    def work(self):
        while self.sent[-1:] != ["end"]:
            self.sent.append((yield f"state {len(self.sent)}"))
        return "rows"

    def at(self, now_s, ready):
        self.now_s = now_s
        return self.steps.send(ready)


def test_an_unanswered_statement_is_canceled_a_second_after_its_timeout(monkeypatch):
    statement = Statement(monkeypatch, timeout_s=8.0)
    assert statement.at(109.0, None) == "state 1"
    with pytest.raises(SendError, match=r"^no answer within 8 s$"):
        statement.at(109.1, None)
    assert statement.sent == [None]


def test_each_answer_restarts_the_timeout(monkeypatch):
    statement = Statement(monkeypatch, timeout_s=8.0)
    assert statement.at(105.0, "read") == "state 1"
    assert statement.at(114.0, None) == "state 2"
    assert statement.at(500.0, "write") == "state 3", "what comes too late has come"
    assert statement.at(509.0, None) == "state 4"
    with pytest.raises(SendError, match=r"^no answer within 8 s$"):
        statement.at(509.1, None)


def test_the_end_of_the_run_cancels_a_statement_only_between_answers(monkeypatch):
    statement = Statement(monkeypatch, timeout_s=8.0)
    statement.client.over = lambda: True
    assert statement.at(101.0, "read") == "state 1"
    with pytest.raises(SendError, match=r"^the run ends$"):
        statement.at(102.0, None)


def test_a_statement_returns_the_result_of_psycopg(monkeypatch):
    statement = Statement(monkeypatch, timeout_s=8.0)
    with pytest.raises(StopIteration) as end:
        statement.at(101.0, "end")
    assert end.value.value == "rows"
