# SPDX-License-Identifier: Apache-2.0
"""Request and response bodies of the API as plain dataclasses, from which FastAPI generates the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, Len

Severity = Literal["error", "warning"]


class RequestRejected(Exception):
    """A rejected request: its HTTP status, a message with the reason and the fix, and further headers."""

    def __init__(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = headers or {}


class RequestBody:
    """Base of the bodies of requests, which have no other fields than these."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(slots=True)
class ErrorResponse:
    """The reason why a request was rejected, and the id of the request."""

    error: str
    request_id: str


@dataclass
class NewSource(RequestBody):
    """A source to add, with the same content as an entry of `sources` in a YAML.

    `id` consists of letters, digits, `_`, `.` and `-`; `uri` is an address such as
    `rtsp://user:password@10.0.0.7/live`; `options` are those that `streamkit explain source` lists, such as
    `{"timeout": "10s"}`.
    """

    id: Annotated[str, Len(1, 64)]
    uri: Annotated[str, Len(1, 2048)]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ChangedSource(RequestBody):
    """Changes to a source: its address, its options, or both.

    Without `uri`, the address is kept; without `options`, all options are kept. `options` replaces all of them: an
    omitted option returns to its default, and `{}` resets every option.
    """

    uri: Annotated[str, Len(1, 2048)] | None = None
    options: dict[str, Any] | None = None


@dataclass
class Credentials(RequestBody):
    """A token, or the name and password of a person.

    `new_password` is needed with a one-time password, which it replaces.
    """

    token: Annotated[str, Len(0, 512)] = ""
    name: Annotated[str, Len(0, 64)] = ""
    password: Annotated[str, Len(0, 256)] = ""
    new_password: Annotated[str, Len(0, 256)] = ""


@dataclass(slots=True)
class SourceView:
    """A source and its state.

    `state` is one of connecting, running, reconnecting, paused, ended, failed; `cause` one of auth, not_found,
    refused, timeout, codec, lost, frozen, or null; `message` describes it in a sentence. `address` and `options` are
    its configured ones, with secrets masked; both are empty unless the request has the token.
    `since_s` is the duration of the state, `quiet_s` the seconds since the last frame of a running source if another
    one is due at its usual rate, or null. `fps` is the rate over the last seconds, `latency` p50, p95 and p99 in
    milliseconds for frames with a due time. `packets` is true if clips can be recorded: test patterns and
    folders of images have no packets. `name` is what people call it, its id if the YAML does not say; `group`,
    `site`, `tags` and `order` are those of the YAML.
    """

    id: str
    name: str
    group: str
    site: str
    tags: list[str]
    order: int
    address: str
    options: dict[str, Any]
    kind: str
    state: str
    cause: str | None
    message: str
    since_s: float
    quiet_s: float | None
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
    """One stage of the graph, its inputs and its counters.

    `queue` is the number of batches that wait before it. `fps` is its rate and `busy` the share of the time, 0 to 1, in
    which its threads worked in it, both over the last seconds; `us_per_frame` is the mean cost of a frame since the
    start.
    """

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
    fps: float
    busy: float
    queue: int
    settings: list[Setting]


@dataclass(slots=True)
class RaisedAlarm:
    """An alarm that is currently raised: its source (or `pipeline`), its duration in seconds, and its text.

    `acknowledged` is true if a person has acknowledged it.
    """

    alarm: str
    source: str
    since_s: float
    text: str
    acknowledged: bool


@dataclass(slots=True)
class AlarmView:
    """An alarm on the pipeline itself: its rule, also in words, how often and where it is raised."""

    name: str
    rule: str
    words: str
    count: int
    raised: list[RaisedAlarm]


@dataclass(frozen=True, slots=True)
class AlarmChange:
    """An alarm that was raised or cleared. `time_s` is in seconds since 1970; `source` is a source or `pipeline`."""

    number: int
    time_s: float
    kind: str
    alarm: str
    source: str
    text: str


@dataclass
class Acknowledgement(RequestBody):
    """The source for which an alarm is acknowledged, or `pipeline`."""

    source: Annotated[str, Len(1, 512)]


@dataclass
class AcknowledgedProblem(RequestBody):
    """The `id` of a problem that a person knows of."""

    id: Annotated[str, Len(1, 512)]


@dataclass(frozen=True, slots=True)
class PipelineProblem:
    """Something that is wrong with the pipeline.

    There is one for each cause: sources that are down for the same reason are one problem, and so are a source that is
    down and the alarms about it. `id` names the problem as long as it lasts. `kind` is one of all_down, source_down,
    no_frames, alarm, run_failed, node_lost, drops, failed_frames, stage_hangs, undelivered, spool, disk, store, audit,
    edit_rejected, untuned, restarted. `since_s` is its duration in seconds. `sources` are the sources that it is about,
    and `source` is the only one or null; `stage` is the stage that it is about, or null. `alarms` names the alarms that
    it has raised. `link` is the address of the page's view that has more about it. `acknowledged` is true if a person
    knows of it; it is a warning then.
    """

    id: str
    severity: Severity
    kind: str
    text: str
    since_s: float
    source: str | None
    sources: list[str]
    stage: str | None
    alarms: list[str]
    link: str
    acknowledged: bool


@dataclass(frozen=True, slots=True)
class LogMessage:
    """A message of the run, with secrets masked.

    `time_s` is in seconds since 1970; `place` is the module; `request_id` is empty unless a request was being served.
    """

    number: int
    time_s: float
    level: str
    place: str
    text: str
    request_id: str


@dataclass(frozen=True, slots=True)
class BottleneckView:
    """What limits the pipeline: the stage, or null if none is the limit, and a sentence."""

    stage: str | None
    text: str


@dataclass(slots=True)
class Status:
    """The pipeline as a whole.

    `ready` says whether it accepts frames, `opening` the stages that are being opened before it does, with what takes
    long, such as the compilation of the tracker on its first run; `time_s` is the server's clock in seconds since 1970;
    `emits` lists the stages that emit events, `records` those that can record
    a clip on request, `alarms` the alarms that are currently raised, `problems` everything that is wrong, `hides` the
    stages that hide objects or places: while there is one, cameras are shown as images only. `differs` is the number of
    differences from the YAML that calls have made: `/config/differences` lists them. `edit_rejected` is true while the
    YAML on the disk differs from the pipeline because it is invalid or could not be applied: `/config` says why.
    """

    version: str
    time_s: float
    device: str
    ready: bool
    opening: list[str]
    stopping: bool
    uptime_s: float
    frames: int
    detections: dict[str, int]
    events: dict[str, int]
    counts: dict[str, int]
    emits: list[str]
    records: list[str]
    alarms: list[RaisedAlarm]
    problems: list[PipelineProblem]
    bottleneck: BottleneckView
    last_event: int
    allow_files: bool
    hides: list[str]
    differs: int
    edit_rejected: bool


Coordinate = Annotated[float, Ge(-1e6), Le(1e6)]
Points = list[tuple[Coordinate, Coordinate]]
YamlText = Annotated[str, Len(0, 300_000)]
Hash = Annotated[str, Len(64, 64)]


@dataclass(slots=True)
class ConfigView:
    """The pipeline's YAML.

    `text` is the file's own text, with its secrets; `hash` names this text in `PUT /config`. `applied` says whether the
    pipeline runs with it; `rejected` why not, if it is invalid or could not be applied. `read_only` says why it cannot
    be saved; it is empty if it can.
    """

    name: str
    text: str
    hash: str
    applied: bool
    rejected: str
    read_only: str


@dataclass
class ConfigText(RequestBody):
    """A text to check in place of the pipeline's YAML."""

    text: YamlText


@dataclass
class ConfigEdit(RequestBody):
    """A new text of the pipeline's YAML, and the `hash` of the text that was edited."""

    text: YamlText
    hash: Hash


@dataclass(slots=True)
class ProblemView:
    """A problem of a YAML. Lines and columns count from 1; 0 is an unknown place. A warning does not prevent saving."""

    line: int
    column: int
    text: str
    warning: bool


@dataclass(slots=True)
class EditView:
    """A checked edit of the YAML: its problems, its unified diff, and whether it was saved.

    `hash` is that of the file's text: of the new text if it was saved. `rebuilds` names what cannot be applied while
    the pipeline runs: if there is something, cameras reconnect, and counts and track ids go on.
    """

    problems: list[ProblemView]
    diff: str
    hash: str
    saved: bool
    rebuilds: list[str]


@dataclass(slots=True)
class DifferenceView:
    """A difference of the running pipeline from its YAML. `kind` is source or setting, `id` that of source or stage."""

    kind: Literal["source", "setting"]
    id: str
    text: str


@dataclass(slots=True)
class DifferencesView:
    """How calls have changed the running pipeline against its YAML.

    `kept` says whether a restart keeps the differences, as `state` in the YAML lets it. `hash` names the YAML's text.
    """

    differences: list[DifferenceView]
    kept: bool
    hash: str


@dataclass
class DifferencesEdit(RequestBody):
    """The `hash` of the YAML's text that is to get what the running pipeline does; `dry_run` only checks that."""

    hash: Hash
    dry_run: bool = False


@dataclass(slots=True)
class ShapeOptionView:
    """An option of a stage that is made of areas, lines or arrows in the frame.

    `option` is its path in the stage, such as `polygon` or `blur.zone`; `kind` is area, line (its sides are in and out)
    or arrow. `single` says whether one shape may have no name, `named` whether there may be several with names, and
    `hides` whether what lies inside is hidden. `shapes` are points by name, in `units`: pixels of the source, or share
    of the frame. `by_source` says whether a shape may be for some sources only; `sources` has them by the names of such
    shapes. `fixed` says why it cannot be edited here; it is empty if it can.
    """

    stage: str
    type: str
    option: str
    kind: str
    single: bool
    named: bool
    hides: bool
    help: str
    units: str
    shapes: dict[str, list[list[float]]]
    by_source: bool
    sources: dict[str, list[str]]
    fixed: str


@dataclass(slots=True)
class ShapesView:
    """The areas and lines in the YAML, its hash, and the width and height of each source's frames in pixels."""

    hash: str
    sizes: dict[str, tuple[int, int]]
    options: list[ShapeOptionView]


@dataclass
class ShapesEdit(RequestBody):
    """New shapes of an option of a stage, in place of all of its shapes; none removes the option.

    A single shape without a name has the name "". `sources` has the sources of shapes that are not for all, by the
    names of the shapes; without it, they are not changed. `hash` is that of the text that was edited. With `dry_run`,
    the edit is checked and shown only.
    """

    option: Annotated[str, Len(1, 100)]
    shapes: Annotated[dict[Annotated[str, Len(0, 64)], Annotated[Points, Len(2, 200)]], Len(0, 200)]
    hash: Hash
    sources: dict[Annotated[str, Len(0, 64)], Annotated[list[Annotated[str, Len(1, 64)]], Len(1, 200)]] | None = None
    units: Literal["pixels", "share"] | None = None
    dry_run: bool = True
