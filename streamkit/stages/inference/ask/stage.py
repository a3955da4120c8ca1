# SPDX-License-Identifier: Apache-2.0
"""`ask`: a question to a vision-language model about an event or a track, in the background."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from streamkit.core.data import Batch, Detections, Event, EventFilter, Frame
from streamkit.core.environment import variable
from streamkit.core.logs import LogOnce
from streamkit.core.retry import Retry
from streamkit.core.sentences import event_label
from streamkit.core.stage import Count, Pixels, Score, Seconds, StreamStage, stage
from streamkit.core.tasks import Background
from streamkit.core.units import OF_FORMS, Of, Rate, WholePixels
from streamkit.io.still_images import JpegQuality, StillImage, on_device, whole
from streamkit.ops.cut import to_host
from streamkit.rules.language import RuleField
from streamkit.stages.inference.apply_results import add_attributes
from streamkit.stages.inference.ask.answer_schema import AnswerSchema
from streamkit.stages.inference.ask.asker import ENDED, Asker
from streamkit.stages.inference.ask.call_budget import CallBudget
from streamkit.stages.inference.ask.endpoint import ChatEndpoint, as_bytes, check_url
from streamkit.stages.inference.ask.questions import AskedTrack, Question, QuestionOutcome, SourceQuestions
from streamkit.stages.inference.select_objects import members
from streamkit.stages.video.best_view import ObjectView, cut_views, measure, views_of

__all__ = ["Ask"]

logger = logging.getLogger(__name__)

ANSWERED = "answered"
QUESTIONS = "questions asked"
CACHED = "questions answered from cache"
MERGED = "questions merged: already open"
QUEUE_FULL = "questions dropped: queue full"
UNSEEN, NO_OBJECT, NO_PIXELS = (
    f"questions given up: {why}"
    for why in ("the object was not seen", "the event has no object", "the frame has no pixels")
)
NO_FRAME = "answers without an event: their source ended"
_ABANDON_S = 1.0
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@stage(
    "ask",
    reads="pixels",
    reads_if={"of": "track_id"},
    writes=("attributes", "events"),
    emits=(ANSWERED,),
    unhide_option="show_hidden",
    late_results=True,
    selects_events=True,
    device_copy="the images that are sent go from device to host, cut out there; 16 bytes a view",
)
class Ask(StreamStage):
    """Ask a vision-language model about an event or a track, and give the object the answer.

    Images go to an OpenAI-compatible endpoint: once for each event, or without `when` once for each track. They are
    taken from the output of the stage above, so `from: draw` sends what `draw` has hidden or drawn. The pipeline never
    waits for an answer. When it comes, the next frame of the source has the event `answered`; the track's objects keep
    the answer as attributes, as in `"attributes": {"injured": {"label": "yes", "score": null}}`.
    """

    url: Annotated[str, "the endpoint, such as http://127.0.0.1:8000/v1; images are sent there."]
    model: Annotated[str, "the model's name at the endpoint."]
    prompt: Annotated[str, "the question."]
    answer: Annotated[
        dict[str, str | list[str]],
        "the values of an answer by name: bool, int, float, str, or a list of words to choose from, as in {injured: "
        "bool, why: str}.",
    ]
    when: Annotated[
        str | list[str] | None,
        "the events to ask about, as STAGE.KIND, STAGE.RULE or STAGE; one or a list. `cleared` must be named. If not "
        "set, each track is asked about once.",
    ] = None
    of: Annotated[Of | None, f"which objects, {OF_FORMS}; all of an event's if not set."] = None
    capture: Annotated[Literal["object", "frame"], "show the object of the event, or the whole frame."] = "object"
    images: Annotated[Count, "number of images: 1 sends the best view; more are spread evenly over `after`."] = 1
    after: Annotated[Seconds, "how long to collect images after the event, or after a track is first seen."] = 2.0
    ask_again: Annotated[
        Seconds | None, "ask about a track again at an event this long after its answer; if not set, never."
    ] = None
    min_size: Annotated[Pixels, "without `when`, a track is asked about when its shorter side reaches this."] = 32.0
    pad: Annotated[Score, "share of the box that is added on each side of the object."] = 0.2
    max_size: Annotated[WholePixels, "maximum length of an image's longer side."] = 768
    quality: Annotated[JpegQuality, "of the JPEG."] = 90
    key_env: Annotated[str | None, "the environment variable with the endpoint's key; if not set, none is sent."] = None
    at_most: Annotated[
        Rate | None,
        "the budget of calls, retries included, such as 20/min, over all processes; questions beyond it are dropped.",
    ] = None
    parallel: Annotated[Count, "number of calls at the same time."] = 2
    queue: Annotated[Count, "number of questions that may wait; further ones are dropped."] = 50
    attempts: Annotated[Count, "number of calls for a question if the endpoint fails or does not answer."] = 3
    max_backoff: Annotated[Seconds, "longest wait between two attempts."] = 10.0
    timeout: Annotated[Seconds, "maximum time of a call."] = 30.0
    drain_timeout: Annotated[Seconds, "how long the last frame of a file waits for answers."] = 60.0
    track_ttl: Annotated[Seconds, "an unseen track keeps its answer for this long."] = 10.0
    parameters: Annotated[dict[str, Any], "further keys of the request, such as temperature and max_tokens."] = field(
        default_factory=lambda: {"temperature": 0, "max_tokens": 300}
    )
    show_hidden: Annotated[bool, "allow images to show what another stage of the pipeline hides."] = False

    def __post_init__(self) -> None:
        """Check what can be checked without the endpoint."""
        check_url(self.url)
        for name in ("model", "prompt"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} must not be empty")
        self._schema = AnswerSchema(self.answer)
        if self.when is not None and not self.when:
            raise ValueError("when must name an event, as in fallen.raised")
        if self.when is None and (self.of is None or self.capture == "frame"):
            raise ValueError(
                "needs when: the events to ask about, as in fallen.raised; or of: the objects, to ask once for each "
                "track, with capture: object"
            )
        if self.capture == "frame" and self.of is not None:
            raise ValueError("of selects objects; leave it out with capture: frame")
        if self.timeout <= 0:
            raise ValueError("timeout must be longer than 0s")
        if self.images > 1 and self.after <= 0:
            raise ValueError(f"images: {self.images} are spread over after, which must be longer than 0s")
        try:
            as_bytes(self.parameters)
        except TypeError as error:
            raise ValueError(f"parameters must be values of JSON: {error}") from error
        if reserved := {"model", "messages", "response_format", "stream", "n"} & self.parameters.keys():
            raise ValueError(f"parameters must not contain {', '.join(sorted(reserved))}, which the stage sets")
        self._key = None if self.key_env is None else _key(self.key_env)
        names = [self.when] if isinstance(self.when, str) else self.when or []
        self._when = EventFilter(names)
        self._cleared = any(name.endswith(".cleared") for name in names)

    # ------------------------------------------------------------------------------------------------ for the runner

    def probe(self) -> None:
        """Check that httpx is installed."""
        self.make_endpoint().close()

    def open(self) -> None:
        """Start the background work."""
        context = self.context
        retry = Retry(max_wait_s=self.max_backoff, attempts=self.attempts)
        budget = CallBudget(self.at_most, Path("spool", context.id or self.name, "calls"))
        self._endpoint = self.make_endpoint()
        asker = Asker(context.id, self._endpoint, self.prompt, self._schema, budget, retry, self.max_size, self.quality)
        background = context.runtime.background(asker, self.parallel, self.queue, context.id)
        self._background: Background[Question, QuestionOutcome] = background
        self._warn = LogOnce(logger.warning)
        self._waiting = 0
        self._closed: set[str] = set()

    def new_state(self, source: str) -> SourceQuestions:
        """See `StreamStage.new_state`."""
        return SourceQuestions()

    def settled(self, source: str) -> bool:
        """See `LateStage.settled`."""
        return source in self._closed and all(question.source != source for question in self._background.unfinished())

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Take answers, collect images, ask what is due; add events and attributes."""
        self._collect()
        present = {frame.source: states[frame.source] for frame in batch.frames}
        due: list[Question] = []
        for frame, tables in zip(batch.frames, self._tables(batch, present.values()), strict=True):
            state = present[frame.source]
            self._begin_questions(frame, state, tables)
            if state.collecting:
                self._look(frame, state, tables)
                due += self._due(frame, state)
        failed = [frame for frame in batch.failed if frame._state.closing]
        for frame in failed:
            if frame.source in states:
                due += self._due(frame, states[frame.source])
        self._ask(due, [view for state in present.values() for question in state.collecting for view in question.views])
        self._closed.update(frame.source for frame in [*batch.frames, *failed] if frame._state.closing)
        self._collect()  # without threads, the answers are there
        for frame in batch.frames:
            self._emit(frame, present[frame.source])
        if self.capture == "object" and any(state.tracks.by_track for state in present.values()):
            for name in batch.tables:
                self._attach(batch, name, present)
        return batch

    def end(self, source: str, state: SourceQuestions) -> None:
        """Give up what has no frame to come."""
        self._collect()
        state.ended = True
        self._closed.discard(source)
        self._waiting -= len(state.collecting)
        self._count(ENDED, len(state.collecting))
        self._count(NO_FRAME, sum(outcome.answer is not None for outcome in state.outcomes))

    def close(self) -> None:
        """End the background work; count what was given up."""
        self._background.close(0.0)
        self._endpoint.close()  # ends the calls
        self._background.close(_ABANDON_S)
        self._collect()
        self._count(ENDED, len(self._background.unfinished()))

    # ------------------------------------------------------------------------------------------------- the questions

    def _tables(self, batch: Batch, present: Collection[SourceQuestions]) -> Sequence[dict[str, Detections]]:
        """The tables of each frame; none if there is nothing to look at."""
        events = (event for frame in batch.frames for event in frame.events)
        idle = (
            self.when is not None
            and not any(state.collecting for state in present)
            and not any(map(self._wanted, events))
        )
        tables_by_frame: list[dict[str, Detections]] = [{} for _ in batch.frames]
        for name in () if idle else batch.tables:
            for tables, part in zip(tables_by_frame, batch.table(name).split(len(batch.frames)), strict=True):
                tables[name] = part
        return tables_by_frame

    def _begin_questions(self, frame: Frame, state: SourceQuestions, tables: Mapping[str, Detections]) -> None:
        """Begin the questions about the events or the new tracks of a frame."""
        state.tracks.sweep(frame.pts_s, self.track_ttl)
        for event in frame.events:
            if self._wanted(event):
                self._begin(frame, state, event, event.track_id, event_label(event))
        if self.when is None:
            for track, label in self._new_tracks(frame, state, tables):
                self._begin(frame, state, None, track, label)

    def _look(self, frame: Frame, state: SourceQuestions, tables: Mapping[str, Detections]) -> None:
        """Offer the open questions their views on a frame."""
        if self.capture == "frame":
            part = whole(frame)
            for question in state.collecting if part is not None else ():
                question.offer(ObjectView(frame.pts_s, frame.index, "frame", None, part, 0), self.images)
            return
        tracks = {question.track_id for question in state.collecting}
        wanted = {name: table[_rows_of(table, tracks)] for name, table in tables.items()}
        views = dict(views_of(replace(frame, tables=wanted), self.of, self.pad, self.max_size))
        if self.images == 1:
            measure(list(views.values()))
        for question in state.collecting:
            if (view := views.get(-1 if question.track_id is None else question.track_id)) is not None:
                question.offer(replace(view), self.images)

    def _wanted(self, event: Event) -> bool:
        named = event in self._when and event.stage != self.context.id
        return named and (event.kind != "cleared" or self._cleared)

    def _new_tracks(
        self, frame: Frame, state: SourceQuestions, tables: Mapping[str, Detections]
    ) -> Iterator[tuple[int, str]]:
        """Yield number and label of the tracks that are large enough and were not asked about."""
        assert self.of is not None
        table = tables.get(self.of.stage)
        if table is None or table.track_id is None or not len(table):
            return
        has_question = np.array(
            [state.tracks.get(track, frame.pts_s, self.track_ttl) is not None for track in table.track_id]
        )
        edges = np.array([frame.width, frame.height, frame.width, frame.height], np.float32)
        boxes = np.clip(table.xyxy, 0, edges)
        large = (boxes[:, 2:] - boxes[:, :2]).min(axis=1) >= self.min_size
        seen = ~np.asarray(table.extra["predicted"], bool) if "predicted" in table.extra else True
        new = table[members(table, self.of) & (table.track_id >= 0) & ~has_question & large & seen]
        yield from zip(new.track_id.tolist(), new.label, strict=True)  # type: ignore[union-attr]

    def _begin(
        self, frame: Frame, state: SourceQuestions, event: Event | None, track: int | None, label: str | None
    ) -> None:
        """Begin a question, unless it is answered, open, or there is no room for it."""
        now_s = frame.pts_s
        if self.capture == "object" and track is None:
            self._count(NO_OBJECT)
            self._warn(f"{self.context.id}: an event has no object to show; capture: frame shows the frame")
            return
        if self.of is not None and label is not None and self.of.labels and label not in self.of.labels:
            return
        until_s = now_s + (self.after if self.capture == "object" or self.images > 1 else 0.0)
        question = Question(state, frame.source, event, track, label, now_s, frame.index, until_s)
        if self._is_answered(state, question, now_s):
            return
        if track is not None and state.tracks.get(track, now_s, self.track_ttl) is None:
            state.tracks.by_track[track] = AskedTrack(now_s)
        if self._waiting >= self.queue:
            self._count(QUEUE_FULL)
            self._warn(
                f"{self.context.id}: {self.queue} questions wait for an answer; further ones are dropped and counted"
            )
            return
        self._waiting += 1
        state.open.add(question.about)
        state.collecting.append(question)

    def _is_answered(self, state: SourceQuestions, question: Question, now_s: float) -> bool:
        """Whether a question need not be asked: it is open, or answered already; then its answer is given again."""
        if question.about in state.open:
            self._count(MERGED)
            return True
        track = question.track_id
        track_answer = None if track is None else state.tracks.get(track, now_s, self.track_ttl)
        if track_answer is None or track_answer.answer is None:
            return False
        if self.ask_again is not None and not 0 <= now_s - track_answer.answered_s < self.ask_again:
            return False
        self._count(CACHED)
        state.outcomes.append(QuestionOutcome(question, track_answer.answer, Counter(), cached=True))
        return True

    def _due(self, frame: Frame, state: SourceQuestions) -> list[Question]:
        """Take the questions that have waited long enough for images; give up those without any."""
        closing = frame._state.closing
        due = [question for question in state.collecting if closing or question.due(frame.pts_s, self.images)]
        state.collecting = [question for question in state.collecting if question not in due]
        for question in due:
            question.index = frame.index
            if not question.views:
                self._waiting -= 1
                state.open.discard(question.about)
                self._count(NO_PIXELS if frame.surface is None else UNSEEN)
        return [question for question in due if question.views]

    def _ask(self, due: Sequence[Question], open_views: Sequence[ObjectView]) -> None:
        """Cut out all views, so that frames can be released, and ask the questions that are due."""
        views = [view for question in due for view in question.views]
        cut_views({id(view): view for view in [*views, *open_views]}.values(), self.max_size)
        stills = [view.still for view in views if view.still is not None]
        if stills and on_device(stills[0]):
            self._count("ask images to host", len(stills))
        surfaces = to_host([still.surface for still in stills])
        left = iter([StillImage(surface, still.size) for surface, still in zip(surfaces, stills, strict=True)])
        for question in due:
            question.images = [next(left) for _ in question.views]
            for view in question.views:
                view.still = None
            self._count(QUESTIONS)
            self._background.offer(question)

    # --------------------------------------------------------------------------------------------------- the answers

    def _collect(self) -> None:
        """Take the outcomes from the background, and count what they cost."""
        for outcome in self._background.results():
            for name, n in outcome.counts.items():
                self._count(name, n)
            question = outcome.question
            self._waiting -= 1
            question.state.open.discard(question.about)
            if question.state.ended:
                self._count(NO_FRAME, int(outcome.answer is not None))
            elif outcome.answer is not None:
                question.state.outcomes.append(outcome)

    def _emit(self, frame: Frame, state: SourceQuestions) -> None:
        """Emit the answers that have come on a frame of their source, and keep them with their tracks."""
        due = [outcome for outcome in state.outcomes if outcome.question.index <= frame.index]
        state.outcomes = [outcome for outcome in state.outcomes if outcome not in due]
        for outcome in due:
            question = outcome.question
            answer = outcome.answer
            assert answer is not None
            attributes = self._schema.attributes(answer)
            if self.capture == "frame":
                state.frame_attributes = attributes
            if question.track_id is not None and not outcome.cached:
                track_answer = AskedTrack(frame.pts_s, answer, attributes, frame.pts_s, frame.index)
                state.tracks.by_track[question.track_id] = track_answer
            frame.emit(ANSWERED, question.track_id, **self._event_data(outcome))
        if state.frame_attributes:
            frame.facts["attributes"] = {**frame.facts.get("attributes", {}), **state.frame_attributes}

    def _event_data(self, outcome: QuestionOutcome) -> dict[str, Any]:
        question = outcome.question
        event = outcome.question.event
        data: dict[str, Any] = {"answer": outcome.answer, "prompt": self.prompt}
        if question.label is not None:
            data["label"] = question.label
        data |= {"cached": True} if outcome.cached else {"latency_s": round(outcome.latency_s, 3)}
        about = {} if event is None else {"stage": event.stage, "kind": event.kind}
        at = question.views[0] if question.views else None
        frame = {"frame": event.frame} if event is not None else {} if at is None else {"frame": at.frame}
        data["of"] = {**about, **frame, "pts_s": round(question.pts_s, 6)}
        return data

    def _attach(self, batch: Batch, name: str, present: Mapping[str, SourceQuestions]) -> None:
        """Give the objects of a table the answers about their tracks."""
        table = batch.table(name)
        if table.track_id is None or not len(table):
            return
        values: list[Mapping[str, Any] | None] = []
        selected = table.track_id >= 0 if self.of is None else (table.track_id >= 0) & self._of(name, table)
        for row, track, is_selected in zip(
            table.batch_row.tolist(), table.track_id.tolist(), selected.tolist(), strict=True
        ):
            frame = batch.frames[row]
            track_answer = present[frame.source].tracks.get(track, frame.pts_s, self.track_ttl) if is_selected else None
            values.append(None if track_answer is None or frame.index < track_answer.index else track_answer.attributes)
        if any(values):
            batch.tables[name] = add_attributes(table, values)

    def _of(self, name: str, table: Detections) -> np.ndarray:
        assert self.of is not None
        return members(table, self.of) if name == self.of.stage else np.zeros(len(table), bool)

    # ---------------------------------------------------------------------------------------------------------- others

    @staticmethod
    def attribute_fields(options: Mapping[str, Any]) -> dict[str, RuleField]:
        """The attributes that a stage with these options writes, for rules and tables."""
        return AnswerSchema(options["answer"]).fields()

    def make_endpoint(self) -> ChatEndpoint:
        """Create the client of the endpoint. Raises MissingPackage."""
        return ChatEndpoint(self.url, self.model, self._key, self.parameters, self.timeout)

    def _count(self, name: str, n: int = 1) -> None:
        if n:
            self.context.counters.add(name, n)


def _key(name: str) -> str:
    """The key in an environment variable, or in the file that `NAME_FILE` names. Raises ValueError."""
    if not _VARIABLE.fullmatch(name):  # it may be the key itself
        raise ValueError("key_env must be the name of an environment variable, such as EYE_KEY, and not the key itself")
    key = variable(name)
    if not key or not key.strip():
        raise ValueError(
            f"key_env: the environment variable {name} is not set; set it to the endpoint's key, or leave out key_env"
        )
    if not key.isascii() or not key.isprintable():
        raise ValueError(f"key_env: the key in {name} must consist of printable ASCII characters, on one line")
    return key.strip()


def _rows_of(table: Detections, tracks: set[int | None]) -> np.ndarray:
    if table.track_id is None:
        return np.zeros(len(table), bool)
    return np.isin(table.track_id, [track for track in tracks if track is not None])
