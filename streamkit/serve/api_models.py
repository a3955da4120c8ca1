"""Request and response bodies of the API as plain dataclasses, from which FastAPI generates the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from annotated_types import Len

from streamkit.runtime.preview.gallery import GalleryEvent

_CLOSED = {"extra": "forbid"}


class RequestRejected(Exception):
    """A rejected request: its HTTP status, a message with the reason and the fix, and further headers."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers or {}


@dataclass(slots=True)
class ErrorResponse:
    """The reason why a request was rejected."""

    error: str


@dataclass
class NewSource:
    """A source to add, with the same content as an entry of `sources` in a YAML.

    `id` consists of letters, digits, `_`, `.` and `-`; `uri` is an address such as
    `rtsp://user:password@10.0.0.7/live`; `options` are those that `run.py explain source` lists, such as
    `{"timeout": "10s"}`.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _CLOSED

    id: Annotated[str, Len(1, 64)]
    uri: Annotated[str, Len(1, 2048)]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ChangedSource:
    """Changes to a source: its address, its options, or both.

    Without `uri`, the address is kept; without `options`, all options are kept. `options` replaces all of them: an
    omitted option returns to its default, and `{}` resets every option.
    """

    __pydantic_config__: ClassVar[dict[str, str]] = _CLOSED

    uri: Annotated[str, Len(1, 2048)] | None = None
    options: dict[str, Any] | None = None


@dataclass
class Credentials:
    """The token that `run.py serve` printed or was started with."""

    __pydantic_config__: ClassVar[dict[str, str]] = _CLOSED

    token: Annotated[str, Len(1, 512)]


@dataclass(slots=True)
class SourceView:
    """A source and its state.

    `state` is one of connecting, running, reconnecting, paused, ended, failed; `cause` one of auth, not_found,
    refused, timeout, codec, lost, frozen, or null; `message` describes it in a sentence. `address` and `options` are
    its configured ones, with secrets masked; both are empty unless the request has the token.
    `since_s` is the duration of the state, `fps` the rate over the last seconds, `latency` p50, p95 and p99 in
    milliseconds for frames with a due time. `packets` is true if clips can be recorded: test patterns and
    folders of images have no packets.
    """

    id: str
    address: str
    options: dict[str, Any]
    kind: str
    state: str
    cause: str | None
    message: str
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
    """An option of a stage that can be changed while the pipeline runs."""

    name: str
    value: Any
    help: str
    schema: dict[str, Any]


@dataclass(slots=True)
class StageView:
    """One stage of the graph, its inputs and its counters. `queue` is the number of batches that wait before it."""

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
    """An event of one frame; `image` is true if `/events/{number}/image.jpg` has its image."""

    number: int
    time_s: float
    source: str
    frame: int
    pts_s: float
    kind: str
    stage: str
    track_id: int | None
    data: dict[str, Any]
    image: bool

    @classmethod
    def of(cls, stored: GalleryEvent) -> EventView:
        """An event of the gallery as the API returns it."""
        event, pts_s = stored.event, round(stored.event.pts_s, 6)
        return cls(
            stored.number, stored.time_s, event.source, event.frame, pts_s, event.kind, event.stage, event.track_id,
            event.data, stored.jpeg is not None,
        )  # fmt: skip


@dataclass(slots=True)
class RaisedAlarm:
    """An alarm that is currently raised: its source (or `pipeline`), its duration in seconds, and its text."""

    alarm: str
    source: str
    since_s: float
    text: str


@dataclass(slots=True)
class AlarmView:
    """An alarm on the pipeline itself: its rule, how often it was raised, and where it is currently raised."""

    name: str
    rule: str
    count: int
    raised: list[RaisedAlarm]


@dataclass(slots=True)
class Status:
    """The pipeline as a whole.

    `ready` says whether it accepts frames; `emits` lists the stages that emit events, `records` those that can record
    a clip on request, `alarms` the alarms that are currently raised, `hides` those that hide objects or places: while
    there is one, cameras are shown as images only.
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
    hides: list[str]
