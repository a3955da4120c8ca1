# SPDX-License-Identifier: Apache-2.0
"""Request and response bodies of the sources' forms: options, connection tests and CSV."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Len

from streamkit.config.source_details import MAX_CHARS, MAX_TAGS
from streamkit.serve.api_models import RequestBody, SourceView


@dataclass(slots=True)
class SourceOption:
    """An option of a source: its help, its type in words, its JSON schema and its default.

    `common` marks those that a form shows first.
    """

    name: str
    help: str
    type: str
    schema: dict[str, Any]
    default: Any
    common: bool


@dataclass
class TestedSource(RequestBody):
    """A source to test: an address and options as in adding a source.

    With the `id` of a source that is there, what is omitted is taken from it, and so are the hidden parts (`***`) of
    its address.
    """

    __test__ = False
    id: Annotated[str, Len(0, 64)] = ""
    uri: Annotated[str, Len(1, 2048)] | None = None
    options: dict[str, Any] | None = None


@dataclass(slots=True)
class TestedConnection:
    """The result of a connection test.

    If the source cannot be read, `ok` is false, `cause` is one of auth, not_found, refused, timeout, codec, lost and
    others, or null, and `error` describes it. `image` is the first frame, a JPEG in base64; it is null if the pipeline
    hides parts of its images. `fps` is what the source says of itself.
    """

    __test__ = False

    ok: bool
    cause: str | None
    error: str
    codec: str | None
    width: int | None
    height: int | None
    fps: float | None
    duration_s: float | None
    image: str | None
    took_s: float


@dataclass
class SourcesCsv(RequestBody):
    """Sources as CSV: the first line names the columns `id`, `uri` and any options.

    `mode` is `check` to report the problems only, `valid` to add the lines without problems, and `all` to add all
    lines, or none if one has a problem.
    """

    csv: Annotated[str, Len(1, 900_000)]
    mode: Literal["check", "valid", "all"] = "check"


@dataclass(slots=True)
class CsvLine:
    """A line of a CSV: its number from 1, the source's id, its masked address, and its problem; empty without one."""

    line: int
    id: str
    address: str
    problem: str


@dataclass(slots=True)
class CsvResult:
    """The lines of a CSV with their problems, and the ids of the sources that were added."""

    lines: list[CsvLine]
    added: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ChangedSources:
    """What has changed of the sources since a version.

    `version` is sent with the next request. `ids` has the ids of all sources in their order, or is null if they are the
    same as before. `sources` has those that differ; of the others only `frames` and `since_s` have gone on, and rates
    and latencies by less than 5 %.
    """

    version: str
    ids: list[str] | None
    sources: list[SourceView]


SourceText = Annotated[str, Len(0, MAX_CHARS)]


@dataclass
class SourceAction(RequestBody):
    """What to do with several sources: pause them, resume them, or change how they are sorted.

    With `change`, `group` and `site` replace those of the sources unless they are null; `add_tags` are added to their
    tags and `remove_tags` taken from them. Sources go on while they are changed.
    """

    ids: Annotated[list[Annotated[str, Len(1, 512)]], Len(1, 5000)]
    action: Literal["pause", "resume", "change"]
    group: SourceText | None = None
    site: SourceText | None = None
    add_tags: Annotated[list[SourceText], Len(0, MAX_TAGS)] = field(default_factory=list)
    remove_tags: Annotated[list[SourceText], Len(0, MAX_TAGS)] = field(default_factory=list)


@dataclass(slots=True)
class SourceProblem:
    """A source for which an action failed, and why."""

    id: str
    problem: str


@dataclass(slots=True)
class ActionResult:
    """The ids of the sources for which an action was done, and those for which it failed."""

    done: list[str]
    failed: list[SourceProblem]
