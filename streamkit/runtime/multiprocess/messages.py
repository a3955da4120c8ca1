# SPDX-License-Identifier: Apache-2.0
"""The orders of a parent to its worker processes, and their messages to it; a pool of batch workers uses some of them.

Each is a frozen dataclass that travels by pickle; who receives it tells them apart with `match`. This module imports
nothing that a child would have to load before its job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamkit.core.data import Event
    from streamkit.core.timeline import LastFrame
    from streamkit.media.nv_sessions import SessionSample
    from streamkit.runtime.observe.report_merge import WorkerReport
    from streamkit.runtime.preview.live import LiveWish

# --------------------------------------------------------------------------------------------- orders to a worker


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """A source that a worker is to read.

    Attributes:
        id: its id.
        number: number of the order; a source that is added again under the same id has another one.
        entry: its entry in the form of the YAML; None for that of the YAML itself.
        paused: whether it is paused.
        after: the last frame that another process has read of it; its indices and times continue after that one.
    """

    id: str
    number: int = 0
    entry: Mapping[str, Any] | None = None
    paused: bool = False
    after: LastFrame | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """Use the device, with these environment variables."""

    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Go:
    """Read the sources: all processes that must be ready are."""


@dataclass(frozen=True, slots=True)
class Add:
    """Read another source."""

    source: SourceOrder


@dataclass(frozen=True, slots=True)
class Remove:
    """End a source."""

    source: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Pause a source, or resume it."""

    source: str
    paused: bool


@dataclass(frozen=True, slots=True)
class Set:
    """Change options of a stage; `number` identifies the change in `SetRefused`."""

    number: int
    stage: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Let a stage record a source."""

    stage: str
    source: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Watch:
    """Make images of a source until a monotonic time in seconds."""

    source: str
    until_s: float


@dataclass(frozen=True, slots=True)
class ViewLive:
    """Make the video and records of a source that its viewers want."""

    source: str
    wish: LiveWish


@dataclass(frozen=True, slots=True)
class MakeSessions:
    """In a spare process: have these NVDEC sessions ready, and no others."""

    samples: Sequence[SessionSample]


@dataclass(frozen=True, slots=True)
class Finish:
    """End once all is processed: no further sources or files come."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the sources; decoded frames drain, and every file is closed."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Drop the frames in flight: another process of the run has failed."""


@dataclass(frozen=True, slots=True)
class Now:
    """Exit at once, without partial files."""


Order = (
    Begin | Go | Add | Remove | Pause | Set | Trigger | Watch | ViewLive | MakeSessions | Finish | Stop | Abort | Now
)
EndingOrder = Finish | Stop | Abort | Now


def name_of(message: Any) -> str:
    """The name of an order or a message in texts for the user, such as `make_sessions`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(message).__name__).lower()


# ------------------------------------------------------------------------------------------ messages to the parent


@dataclass(frozen=True, slots=True)
class Logged:
    """A message for the user; `record` holds the arguments of a `worker_log`."""

    record: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Ready:
    """Every stage is open."""


@dataclass(frozen=True, slots=True)
class Fatal:
    """An error ends the run; `error_of` makes it again."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """The counts so far; a process without reports is killed."""

    counts: WorkerReport


@dataclass(frozen=True, slots=True)
class SessionsInUse:
    """The NVDEC sessions in use have changed; a packet is sent with the first sample of its key only."""

    samples: Sequence[SessionSample]


@dataclass(frozen=True, slots=True)
class SessionsAhead:
    """Number of NVDEC sessions that a spare process has ready."""

    number: int


@dataclass(frozen=True, slots=True)
class TraceRecording:
    """The timeline of the process."""

    recording: Any


@dataclass(frozen=True, slots=True)
class SetRefused:
    """A stage has rejected the options of the order `Set` with this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    """An order could not be carried out."""

    order: Order
    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The process has lost its GPU, and exits."""

    why: str


@dataclass(frozen=True, slots=True)
class Hangs:
    """The process must be killed."""

    why: str


@dataclass(frozen=True, slots=True)
class End:
    """The run of the process is over; it exits."""

    exit_code: int


@dataclass(frozen=True, slots=True)
class PreviewImage:
    """An image of a watched source: a JPEG, the frame's index, and its PTS in seconds."""

    source: str
    jpeg: bytes
    frame: int
    pts_s: float


@dataclass(frozen=True, slots=True)
class GalleryEvents:
    """Events, each with its time in seconds since 1970, the JPEG of its frame, and the box of its object."""

    events: Sequence[tuple[float, Event, bytes | None, tuple[float, float, float, float] | None]]


@dataclass(frozen=True, slots=True)
class LiveData:
    """Live video and records.

    Attributes:
        videos: source, messages and number of lost packets of each video.
        records: source and JSON of each record.
        lost_records: number of lost records.
    """

    videos: Sequence[tuple[str, Sequence[Any], int]]
    records: Sequence[tuple[str, Any]]
    lost_records: int


@dataclass(frozen=True, slots=True)
class Killed:
    """The supervisor has killed the process, for this reason."""

    why: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has exited, in this manner; the last message of every process, added by the supervisor."""

    how: str
