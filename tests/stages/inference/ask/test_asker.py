"""One question to an endpoint: what becomes of a call that fails."""

import json

import numpy as np
import pytest
from support.clock import FakeClock

from streamkit.core.retry import Retry
from streamkit.stages.inference.ask import asker as asker_module
from streamkit.stages.inference.ask.answer_schema import AnswerSchema
from streamkit.stages.inference.ask.asker import Asker
from streamkit.stages.inference.ask.call_budget import CallBudget
from streamkit.stages.inference.ask.endpoint import ChatEndpoint
from streamkit.stages.inference.ask.questions import Question, SourceQuestions


@pytest.fixture
def ask(vlm, tmp_path):
    """Ask a question; returns the outcome."""
    endpoint = ChatEndpoint(vlm.url, "eye", None, {}, 5.0)
    schema = AnswerSchema({"injured": "bool", "why": "str"})
    budget = CallBudget(None, tmp_path / "calls")
    asker = Asker("ask", endpoint, "?", schema, budget, Retry(max_wait_s=8.0, attempts=4), 100, 90)
    yield lambda: asker(Question(SourceQuestions(), "gate", None, 7, "person", 0.0, 0, 0.0), lambda: False)
    endpoint.close()


def test_a_concurrent_fallback_without_schema_loses_no_question(vlm, ask):
    vlm.knows_response_format = False
    take = vlm.take
    others = []

    def slow(call):
        if not others:
            others.append(None)
            others[0] = ask()  # asked and answered while the first call is under way
        return take(call)

    vlm.take = slow
    outcome = ask()
    assert outcome.answer == others[0].answer == {"injured": True, "why": "lies there"}
    assert (outcome.counts["ask calls"], outcome.counts["ask retries"]) == (2, 0)


def test_a_refused_call_is_not_retried_without_a_schema_the_server_accepted(vlm, ask):
    vlm.answers = lambda call, number: 400 if number else {"injured": True, "why": "lies there"}
    answered = ask()
    refused = ask()
    assert (answered.counts["ask calls"], refused.counts["ask calls"]) == (1, 1)
    assert (answered.answer is None, refused.answer) == (False, None)


def test_a_server_that_refuses_both_forms_is_tried_once_each(vlm, ask):
    vlm.answers = lambda call, number: 400
    assert [ask().counts["ask calls"] for _ in range(3)] == [2, 1, 1]


def test_retry_waits_follow_the_servers_retry_after(vlm, ask, monkeypatch):
    clock = FakeClock(0.0)
    called_s = []
    monkeypatch.setattr(asker_module, "time", clock)
    headers = [{}, {"Retry-After": "3"}, {"Retry-After": "600"}]
    take = vlm.take
    error = json.dumps({"error": "busy"}).encode()

    def busy(call):
        called_s.append(clock.now_s)
        return (429, error, headers.pop(0)) if headers else take(call)

    vlm.take = busy
    outcome = ask()
    assert outcome.answer is not None
    assert {name: count for name, count in outcome.counts.items() if name.startswith(("ask calls", "ask retries"))} == {
        "ask calls": 4,
        "ask calls failed: HTTP 429": 3,
        "ask retries": 3,
    }
    first_s, *others_s = np.diff(called_s)
    assert 0.25 <= first_s < 0.6
    assert others_s == pytest.approx([3.0, 8.0], abs=0.1)
