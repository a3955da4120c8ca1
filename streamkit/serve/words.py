"""What goes into the API and what comes out of it, as plain dataclasses: FastAPI makes the OpenAPI page of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Len

_CLOSED = {"extra": "forbid"}


class Refused(Exception):
    """A request that cannot be done: the HTTP status that says so, words a user can act on, and further headers."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers or {}


@dataclass(slots=True)
class Problem:
    """Why a request was refused."""

    error: str


@dataclass
class NewSource:
    """A source to add: what a YAML says under `sources`.

    `id` is made of letters, digits, `_`, `.` and `-`, `uri` is an address such as `rtsp://user:password@10.0.0.7/live`,
    and `options` are those that `run.py explain source` shows, such as `{"timeout": "10s"}`.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _CLOSED

    id: Annotated[str, Len(1, 64)]
    uri: Annotated[str, Len(1, 2048)]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ChangedSource:
    """What of a source changes: its address, its options, or both.

    Without `uri` the address stays, without `options` all options stay. `options` replaces all of them: an option that
    it leaves out goes back to its default, and `{}` resets every option.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _CLOSED

    uri: Annotated[str, Len(1, 2048)] | None = None
    options: dict[str, Any] | None = None


@dataclass
class Credentials:
    """The token that `run.py serve` printed or was given."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CLOSED

    token: Annotated[str, Len(1, 512)]


@dataclass(slots=True)
class Source:
    """A source and how it is.

    `state` is one of connecting, running, reconnecting, paused, ended, failed; `cause` one of auth, not_found,
    refused, timeout, codec, lost, frozen, or null; `words` say it in a sentence. `address` and `options` are those
    it was given, with secrets masked; both are empty unless the request shows the token. `since_s` is how long the
    state has lasted, `fps` the rate of the last seconds, `latency` p50, p95 and p99 in milliseconds where frames
    have a time at which they were due. `packets` says whether it has any that a clip could be made of: made-up
    pictures and folders of them have none.
    """

    id: str
    address: str
    options: dict[str, Any]
    kind: str
    state: str
    cause: str | None
    words: str
    since_s: float
    frames: int
    fps: float
    dropped: dict[str, int]
    reconnects: dict[str, int]
    latency: dict[str, float]
    counts: dict[str, int]
    packets: bool


@dataclass(slots=True)
class Setting:
    """An option of a stage that may change while the pipeline runs."""

    name: str
    value: Any
    help: str
    schema: dict[str, Any]


@dataclass(slots=True)
class StageView:
    """One stage of the graph, its inputs, and what it has done. `queue` batches wait before it."""

    id: str
    type: str
    kind: str
    where: str
    inputs: list[str]
    adds: list[str]
    crossings: list[str]
    frames: int
    failed: int
    us_per_frame: float | None
    queue: int
    settings: list[Setting]


@dataclass(slots=True)
class EventView:
    """Something that happened at one frame; `picture` says whether `/events/{number}/picture.jpg` has one."""

    number: int
    time_s: float
    source: str
    frame: int
    pts_s: float
    kind: str
    stage: str
    track_id: int | None
    data: dict[str, Any]
    picture: bool


@dataclass(slots=True)
class RaisedAlarm:
    """An alarm that is raised now: of which source (or `pipeline`), for how long in seconds, and what it said."""

    alarm: str
    source: str
    since_s: float
    text: str


@dataclass(slots=True)
class AlarmView:
    """An alarm on the pipeline itself: its rule, how often it was raised, and of what it is raised now."""

    name: str
    rule: str
    count: int
    raised: list[RaisedAlarm]


@dataclass(slots=True)
class Status:
    """The pipeline as a whole.

    `ready` says whether it takes frames; `emits` names the stages that emit events, `records` those that record a clip
    when they are asked to, `alarms` those that are raised now.
    """

    version: str
    device: str
    ready: bool
    stopping: bool
    uptime_s: float
    frames: int
    detections: dict[str, int]
    events: dict[str, int]
    counts: dict[str, int]
    emits: list[str]
    records: list[str]
    alarms: list[RaisedAlarm]
    last_event: int
    allow_files: bool
