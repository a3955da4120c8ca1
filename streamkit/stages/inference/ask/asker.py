# SPDX-License-Identifier: Apache-2.0
"""Asks a question in the background: budget, JPEG, calls with retries, validation of the answer."""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from streamkit.core.logs import LogOnce
from streamkit.core.retry import Retry
from streamkit.io.still_images import jpegs
from streamkit.stages.inference.ask.answer_schema import AnswerError, AnswerSchema
from streamkit.stages.inference.ask.call_budget import CallBudget
from streamkit.stages.inference.ask.endpoint import CallError, ChatEndpoint, Reply
from streamkit.stages.inference.ask.questions import Question, QuestionOutcome

logger = logging.getLogger(__name__)

ANSWERED = "questions answered"
ENDED = "questions given up: their source ended"
NO_BUDGET = "questions dropped: budget used up"
FAILED = "questions failed"
REFUSED = "answers refused"
CALLS = "ask calls"
RETRIES = "ask retries"
MILLISECONDS = "ask call milliseconds"
CALLS_FAILED = "ask calls failed"
TOKENS = "ask tokens"
_FIRST_WAIT_S = 0.5
_POLL_S = 0.05

Over = Callable[[], bool]


class Asker:
    """Asks questions, on any thread.

    Args:
        id_: the stage's id, for messages.
        endpoint: the endpoint.
        prompt: the question.
        schema: the form of the answer.
        budget: the budget of calls.
        retry: number of attempts, and the longest wait between two.
        max_size: longer side of the images at most, in pixels.
        quality: of the JPEGs.
    """

    def __init__(
        self,
        id_: str,
        endpoint: ChatEndpoint,
        prompt: str,
        schema: AnswerSchema,
        budget: CallBudget,
        retry: Retry,
        max_size: int,
        quality: int,
    ) -> None:
        self._id = id_
        self._endpoint = endpoint
        self._schema = schema
        self._budget = budget
        self._retry = retry
        self._prompt = prompt.strip()
        self._form = schema.json_schema()
        self._max_size = max_size
        self._quality = quality
        self._knows_form: bool | None = None  # whether the server knows response_format; None until a call succeeds
        self._warn = LogOnce(logger.warning)
        self._info = LogOnce(logger.info)

    def __call__(self, question: Question, over: Over) -> QuestionOutcome:
        """Ask a question; whatever happens is in the outcome."""
        counts: Counter[str] = Counter()
        answer = None
        try:
            images = jpegs(question.images, self._max_size, self._quality)
            reply = self._replied(images, counts, over)
            if reply is not None:
                answer = self._schema.read(reply.text)
                counts[ANSWERED] += 1
        except AnswerError as error:
            counts[f"{REFUSED}: {error.cause}"] += 1
            self._warn(f"{self._id}: an answer of {self._endpoint.where} is refused and counted: {error}")
        except ValueError as error:  # an image that cannot be a JPEG
            counts[f"{FAILED}: image"] += 1
            self._warn(f"{self._id}: {error}")
        question.images = []
        return QuestionOutcome(question, answer, counts, time.monotonic() - question.created_s)

    def _replied(self, images: list[bytes], counts: Counter[str], over: Over) -> Reply | None:
        """Call until there is a reply; None if the question is given up."""
        attempt = 1
        attempts = self._retry.attempts or 1
        wait_s = _FIRST_WAIT_S
        form = None if self._knows_form is False else self._form
        while True:
            if not self._budget.take():
                counts[NO_BUDGET] += 1
                self._warn(f"{self._id}: the budget of calls is used up; further questions are dropped and counted")
                return None
            try:
                return self._called(images, form, counts)
            except CallError as error:
                counts[f"{CALLS_FAILED}: {error.cause}"] += 1
                if error.not_understood and form is not None and not self._knows_form:  # others may know by now
                    form = None
                    continue
                if not over() and (not error.retry or attempt >= attempts):
                    self._give_up(error, attempt, counts)
                    return None
                jittered_s = wait_s * random.uniform(0.5, 1.0)  # so that questions do not retry in step
                if not _wait(min(max(jittered_s, error.wait_s), self._retry.max_wait_s), over):
                    counts[ENDED] += 1
                    return None
            attempt = attempt + 1
            wait_s = 2 * wait_s
            counts[RETRIES] += 1

    def _called(self, images: list[bytes], form: dict[str, Any] | None, counts: Counter[str]) -> Reply:
        """Make one call, and count it. Raises CallError."""
        counts[CALLS] += 1
        started_s = time.monotonic()
        try:
            reply = self._endpoint.ask(self._text(len(images)), images, form)
        except CallError as error:
            if error.not_understood and form is None and self._knows_form is None:
                self._knows_form = True  # it fails without it as well, so that it was not the cause
            raise
        finally:
            counts[MILLISECONDS] += round(1000 * (time.monotonic() - started_s))
        counts[f"{TOKENS}: prompt"] += reply.prompt_tokens
        counts[f"{TOKENS}: completion"] += reply.completion_tokens
        if self._knows_form is None:
            self._knows_form = form is not None
            if form is None:
                self._info(
                    f"{self._id}: {self._endpoint.where} does not know response_format; the form of the answer is in "
                    "the prompt only"
                )
        return reply

    def _text(self, images: int) -> str:
        strip = f"The {images} images show moments that follow each other.\n\n" if images > 1 else ""
        return f"{self._prompt}\n\n{strip}{self._schema.instruction()}"

    def _give_up(self, error: CallError, attempts: int, counts: Counter[str]) -> None:
        counts[f"{FAILED}: {error.cause}"] += 1
        tried = "" if attempts == 1 else f" after {attempts} attempts"
        self._warn(f"{self._id}: {self._endpoint.where}: {error}; the question is given up{tried} and counted")


def _wait(seconds: float, over: Over) -> bool:
    """Wait; return False if the run ends."""
    until_s = time.monotonic() + seconds
    while not over():
        if (left_s := until_s - time.monotonic()) <= 0:
            return True
        time.sleep(min(left_s, _POLL_S))
    return False
