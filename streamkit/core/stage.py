# SPDX-License-Identifier: Apache-2.0
"""The stage contract: kinds of stages, their options, and the registry.

A stage is a class. Its annotated fields are its options, its docstring is the help, and its base class says how the
runner calls it. Built-in stages and plugins are declared in the same way:

    @stage("tripwire", reads="track_id", writes="events")
    class Tripwire(FrameStage):
        '''Emit `crossed` when a track's foot point changes side of the line.'''

        line: Annotated[tuple[Point, Point], "the line's two ends"]

        def process(self, frame): ...
"""

from __future__ import annotations

import copy
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, dataclass_transform

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.errors import ConfigError
from streamkit.core.logs import stage_log
from streamkit.core.options import Option, check_names, options, summary
from streamkit.core.retry import Retry
from streamkit.core.stage_spec import StageSpec, declare
from streamkit.core.tasks import Background, Future, OrderedExecutor
from streamkit.core.tracing import Spans
from streamkit.core.units import Bytes, Count, Pixels, Point, Score, Seconds

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

__all__ = [
    "BatchStage",
    "Bytes",
    "Composite",
    "CompositePart",
    "Context",
    "Count",
    "FrameStage",
    "Option",
    "Pixels",
    "Point",
    "Registry",
    "RuntimeContext",
    "Score",
    "Seconds",
    "Sink",
    "Source",
    "Stage",
    "StreamStage",
    "default_registry",
    "options",
    "stage",
    "summary",
]


class PacketBuffer(Protocol):
    """Receives the packets, `av.Packet`, of a source that `reads_packets`; `media/ring.py` implements it."""

    def begin(self, stream: Any, *, live: bool = False) -> None:
        """Start a new connection, or a file again; `stream` is the `av.VideoStream` that is read."""

    def put(self, packet: Any) -> None:
        """Add the next packet."""

    def packet_ref(self, pts_s: float) -> Any:
        """Return the reference to the packet of the frame with the PTS `pts_s`, for `FrameState.packet_ref`."""

    def passed(self, pts_s: float) -> None:
        """Take the PTS, over all connections, of the frame that `packet_ref` was last called for."""


class StageState(Protocol):
    """What a stage keeps over restarts: bytes by key; `runtime/control/stage_state.py` implements it."""

    def load(self) -> dict[str, bytes]:
        """Return everything that is stored."""

    def due(self, every_s: float) -> bool:
        """Whether the last `save` started `every_s` seconds ago or earlier, and is done."""

    def save(self, changed: Mapping[str, bytes | None], *, wait: bool = False) -> None:
        """Store values, and remove the keys whose value is None; in the background unless `wait` is set."""


@dataclass(slots=True)
class RuntimeContext:
    """Hooks and shared objects of the runner, for built-in stages; not for plugins.

    Attributes:
        spans: records spans in the timeline of a run with `--profile`.
        executor: a source's executor for work that can run ahead of its turn.
        future: the class for work that need not be complete when the first frame arrives.
        background: the class for work for which the pipeline never waits, such as requests to a server.
        live: whether many live sources wait until the networks are tuned, seconds for each size of a run.
        on_packet: called by a source that `reads_packets` with each `av.Packet` first; may change bytes in place.
        packet_buffer: where a source that `reads_packets` puts each packet; None if nothing reads packets.
        report_status: called by a source with its state (connecting, running, reconnecting, paused, ended, failed), the
            cause (one of `SourceError.CAUSES`, or None) and a message.
        facts: what a source knows about itself: codec, width, height, fps, frames, duration_s.
        file: an open file that a source of video reads instead of its `uri`, which then is only the file's name.
        addresses: the sources' addresses by id, for a sink that reads a source's own packets.
        streams: the number of the video stream by source id, for sources with the option `stream`.
        stage_state: what the stage keeps over restarts; None unless the pipeline has `state`.
        draws_in_place: whether a stage that draws may change its input surfaces, because no other branch reads them.
        opening_note: what takes long while the stage is opened, for people; set by the stage.
        carried: what the stage passes on when the pipeline is rebuilt, stored as it is closed; None if it never is.
    """

    spans: Spans = field(default_factory=Spans)
    executor: OrderedExecutor = field(default_factory=OrderedExecutor)
    future: type[Future[Any]] = Future
    background: type[Background[Any, Any]] = Background
    live: bool = False
    on_packet: Callable[[Any], None] | None = None
    packet_buffer: PacketBuffer | None = None
    report_status: Callable[[str, str | None, str], None] = lambda state, cause, message: None
    facts: dict[str, Any] = field(default_factory=dict)
    file: IO[bytes] | None = None
    addresses: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    stage_state: StageState | None = None
    draws_in_place: bool = False
    opening_note: str = ""
    carried: StageState | None = None


@dataclass(slots=True)
class Context:
    """What the runner gives an instance before `open`.

    Attributes:
        id: the stage's id in the YAML; a source's id for a source.
        device: where the pipeline's arrays live.
        batch_sizes: the sizes that a batch may have, ascending; partial batches are padded to one of them.
        threads: how many CPU threads the instance may use.
        counters: counts that the report shows.
        log: log a message at level INFO, once per text.
        runtime: the runner's hooks for built-in stages; they may change.
    """

    id: str = ""
    device: Device = field(default_factory=Device)
    batch_sizes: tuple[int, ...] = (1,)
    threads: int = 1
    counters: Counters = field(default_factory=Counters)
    log: Callable[[str], None] = field(default_factory=stage_log)
    runtime: RuntimeContext = field(default_factory=RuntimeContext)

    @contextmanager
    def uncounted(self) -> Iterator[None]:
        """Discard what is counted while the block runs, such as warming up."""
        counters = self.counters
        self.counters = Counters()
        try:
            yield
        finally:
            self.counters = counters


class Stage:
    """The base of every kind. `open` and `close` are optional; `close` runs if `open` succeeded.

    An instance is never called twice at once and stays on one thread. A stage declares what it reads, writes and needs
    in `@stage(...)`; a base class or a part of a composite uses class arguments, as in
    `class Counting(StreamStage, reads="track_id")`. Both fill `spec`.
    """

    spec: ClassVar[StageSpec] = StageSpec()
    name: ClassVar[str] = ""
    context: Context = Context()

    def __init_subclass__(cls, **declared: Any) -> None:
        super().__init_subclass__()
        cls.spec = declare(cls, declared)
        cls.name = cls.spec.name

    def probe(self) -> None:
        """Reject a machine on which the stage cannot work, for example without a package. Called before `open`."""

    def open(self) -> None:
        """Acquire resources: models, files, buffers."""

    def changed(self) -> None:
        """Apply new values of `changeable` options. Called between two batches."""

    def close(self) -> None:
        """Release the resources."""


class Source(Stage):
    """Yields frames in order, and returns at the end. One instance per source, on its own thread."""

    @property
    def unbounded(self) -> bool:
        """Whether the source has its own pace or no end. Other sources, such as whole files, may be read later."""
        return False

    def first_frame_size(self) -> tuple[int, int] | None:
        """Return width and height of the first frame in pixels; None if they are unknown before the run.

        `check` calls it. It must not connect to a camera or a server.

        Raises:
            SourceError: the source cannot be read.
        """
        return None

    @property
    def retry(self) -> Retry | None:
        """How the runner reopens a source that fails, or a live source that ends; None leaves it closed."""
        return None

    def stop(self) -> None:
        """Called from another thread when the run ends: leave waits early. The runner reads no further frame."""

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order."""
        raise NotImplementedError


class BatchStage(Stage):
    """Processes whole batches and keeps nothing between them.

    A batch may mix sources. Arrays are on the pipeline's device, and its CUDA stream is current. The runner may create
    several instances; it restores the order of the batches.
    """

    def process(self, batch: Batch) -> Batch:
        """Return the batch with this stage's results."""
        raise NotImplementedError


class StreamStage(Stage):
    """Processes each source's frames in order, all sources of a batch in one call; on the host, unless `on_device`.

    `states` holds one state object per source, created by `new_state` and dropped when the source ends. With several
    processes, each has its own instance, which receives the sources of its process.
    """

    def new_state(self, source: str) -> Any:
        """Create the state of a new source."""
        return None

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Return the batch with this stage's results."""
        raise NotImplementedError

    def end(self, source: str, state: Any) -> None:
        """Called after the last frame of `source`; its state is dropped."""


class FrameStage(Stage):
    """Processes the frames of one source in order, on the host: the simplest kind. One instance per source."""

    def process(self, frame: Frame) -> None:
        """Change `frame.detections`, call `frame.emit(...)`, or assign `frame.surface`. Return nothing, or the frame.

        `frame.image()` is a copy: painting on it does not change the frame.
        """
        raise NotImplementedError


class Sink(Stage):
    """Writes frames, in order for each source, and passes them on unchanged.

    A sink that can encode a whole batch at once, which is faster than frame by frame, defines `encode`.
    """

    def write(self, frame: Frame) -> None:
        """Write one frame."""
        raise NotImplementedError

    @staticmethod
    def encode(batch: Batch) -> list[Any]:
        """Encode all frames of a batch at once; `write_encoded` then replaces `write`.

        The batch's tables are on the host, and the tables of the frames are not filled. If it raises, `write` is used.
        """
        raise NotImplementedError

    def write_encoded(self, frame: Frame, encoded: Any) -> None:
        """Write the result of `encode` for one frame."""
        raise NotImplementedError

    def flush(self) -> None:
        """Called after the frames of a batch were written, before they are passed on."""

    def end(self, source: str) -> None:
        """Called after the last frame of `source`."""


@dataclass(frozen=True, slots=True)
class CompositePart:
    """One stage of a composite: `detect.infer` is the part `infer` of the stage `detect`."""

    name: str
    type: type[Stage]
    options: dict[str, Any]


class Composite(Stage):
    """Expands to a chain of stages. Never runs itself."""

    def parts(self) -> list[CompositePart]:
        """The stages of the chain, in order."""
        raise NotImplementedError


_KINDS = (Source, BatchStage, StreamStage, FrameStage, Sink, Composite)
KINDS: dict[str, type[Stage]] = {kind.__name__: kind for kind in _KINDS}
_Declared = TypeVar("_Declared", bound=type[Stage] | Callable[..., None])


class PluginPart(Protocol):
    """A network family or a tracker method of a plugin, as the registry sees it."""

    @property
    def name(self) -> str:
        """The name in a card or in the YAML."""

    @property
    def origin(self) -> tuple[str, str]:
        """The file and the qualified name of the function or class that implements it."""


class Registry(dict[str, type[Stage]]):
    """The stages that a pipeline may use, by name.

    Attributes:
        families: the network families of plugins, by name.
        trackers: the tracker methods of plugins, by name.
    """

    def __init__(self, stages: Mapping[str, type[Stage]] | None = None) -> None:
        super().__init__(stages or {})
        self.families: dict[str, Any] = {}
        self.trackers: dict[str, Any] = {}

    def add(self, kind: type[Stage]) -> None:
        """Add a stage under its name. It may replace a built-in stage; two plugins cannot share a name."""
        registered = self.get(kind.name)
        if registered is not None and _origin(registered) != _origin(kind) and (ships(kind) or not ships(registered)):
            first, second = (f"{claims.__qualname__} in {claims.__module__}" for claims in (registered, kind))
            raise ConfigError(f"two stages claim the name {kind.name!r}: {first} and {second}; rename one of them")
        self[kind.name] = kind

    def add_family(self, family: PluginPart) -> None:
        """Add a network family under its name; two plugins cannot share a name."""
        _add_part(self.families, "network family", family)

    def add_tracker(self, method: PluginPart) -> None:
        """Add a tracker method under its name; two plugins cannot share a name."""
        _add_part(self.trackers, "tracker method", method)

    def include(self, other: Registry) -> None:
        """Add the stages, families and tracker methods of another registry."""
        for kind in other.values():
            self.add(kind)
        for family in other.families.values():
            self.add_family(family)
        for method in other.trackers.values():
            self.add_tracker(method)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self)

    def copy(self) -> Registry:
        """A registry with the same stages, families and tracker methods."""
        registry = Registry(self)
        registry.families = dict(self.families)
        registry.trackers = dict(self.trackers)
        return registry


def _add_part(parts: dict[str, Any], what: str, part: PluginPart) -> None:
    """Add a plugin's part under its name; raises ConfigError if another plugin has it."""
    other = parts.get(part.name)
    if other is not None and other.origin != part.origin:
        claims = " and ".join(f"{name} in {file}" for file, name in (other.origin, part.origin))
        raise ConfigError(f"two plugins claim the {what} {part.name!r}: {claims}; rename one of them")
    parts[part.name] = part


def _origin(kind: type[Stage]) -> tuple[str, str]:
    """The file and name of a class: a plugin that a test also imports has the same origin."""
    module = sys.modules.get(kind.__module__)
    return getattr(module, "__file__", None) or kind.__module__, kind.__qualname__


def ships(kind: type[Stage]) -> bool:
    """Whether a stage is built in."""
    return kind.__module__.startswith(tuple(f"{package}." for package in _packages))


def scope_of(kind: type[Stage]) -> Literal["source", "pipeline"] | None:
    """The scope of a stage: declared, or `source` for built-in stages and for kinds that keep state per source.

    None for a plugin's `BatchStage` that declares nothing: it sees all sources and may keep state across them.
    """
    if kind.spec.scope is not None or (issubclass(kind, BatchStage) and not kind.spec.built_in):
        return kind.spec.scope
    return "source"


_decorated = Registry()
_target: Registry = _decorated
_packages: list[str] = []
_installed: dict[tuple[str, str], Registry] = {}
"""What each entry point registers: Python imports its module once, and every registry needs it."""


def add_built_in(package: str) -> None:
    """Name a package whose modules declare built-in stages; `default_registry` imports them."""
    _packages.append(package)


def current_registry() -> Registry:
    """The registry to which decorators add: that of the plugin being loaded, or of the built-in stages."""
    return _target


@dataclass_transform()
def stage(
    name: str,
    *,
    reads: str | tuple[str, ...] | None = None,
    writes: str | tuple[str, ...] | None = None,
    **declared: Any,
) -> Callable[[_Declared], _Declared]:
    """Declare a class or a function as a stage.

    The annotated fields of a class are its options. A function receives a frame, changes `frame.detections` or calls
    `frame.emit(...)`; its keyword-only parameters are its options. `Annotated[int, "in pixels"]` adds help to an
    option.

    Args:
        name: the stage's name in the YAML.
        reads: what an earlier stage must write: `pixels`, `tensor`, `outputs`, `detections`, `track_id`, or the name of
            a column. This and the following are inherited from the base class by default.
        writes: what the stage adds, in the same words, or `events`.
        declared: further attributes of `streamkit.core.stage_spec.StageSpec`, such as `emits` and `changeable`.

    Raises:
        TypeError: the class is not a stage, or a declaration or an option has an invalid name.
    """
    if not isinstance(name, str):  # `@stage` without parentheses: the name is the class
        raise TypeError('@stage needs the name of the stage in the YAML: write @stage("my_stage")')

    def decorate(target: _Declared) -> _Declared:
        kind: Any = target
        if inspect.isfunction(target):
            kind = _of_function(target)
        base = next((base for base in _KINDS if issubclass(kind, base)), None)
        if base is None:
            raise TypeError(f"stage {name!r}: {kind.__name__} must be a subclass of {', '.join(KINDS)}")
        stage_class: Any = dataclass(kind, eq=False)
        stage_class.spec = declare(stage_class, {"name": name, "reads": reads, "writes": writes, **declared})
        stage_class.name = name
        check_names(stage_class, base, source=base is Source)
        _target.add(stage_class)
        return stage_class  # type: ignore[no-any-return]

    return decorate


def _of_function(function: Callable[..., None]) -> type[FrameStage]:
    """Create a class whose `process` calls the function, with the keyword-only parameters as fields.

    Raises:
        TypeError: the parameters are not one frame and keyword-only options with types.
    """
    parameters = list(inspect.signature(function).parameters.values())
    others = parameters[1:]
    if not parameters or any(
        (parameter.kind is parameter.KEYWORD_ONLY) is (parameter is parameters[0]) for parameter in parameters
    ):
        example = f"def {function.__name__}(frame, *, strength: int = 3)"
        raise TypeError(f"a stage function takes a frame and keyword-only options, as in {example}")
    if bare := [parameter.name for parameter in others if parameter.annotation is parameter.empty]:
        raise TypeError(f"the option {bare[0]!r} of the stage function {function.__name__} needs a type")
    names = [parameter.name for parameter in others]

    def process(self: FrameStage, frame: Frame) -> Any:
        return function(frame, **{name: getattr(self, name) for name in names})

    process.__wrapped__ = function  # type: ignore[attr-defined]  # errors name its line
    body = {
        parameter.name: _default(parameter.default) for parameter in others if parameter.default is not parameter.empty
    }
    about = {"__module__": function.__module__, "__qualname__": function.__qualname__, "__doc__": function.__doc__}
    hints = {parameter.name: parameter.annotation for parameter in others}
    return type(function.__name__, (FrameStage,), {**about, **body, "__annotations__": hints, "process": process})


def _default(default: Any) -> Any:
    """A list or dict as a default: each instance gets a copy, because a dataclass rejects it."""
    return default if default.__hash__ is not None else field(default_factory=lambda: copy.copy(default))


def default_registry() -> Registry:
    """A registry of the built-in stages and those of installed packages (entry point group `streamkit.stages`)."""
    with Collecting(_decorated):  # a plugin that is being loaded may make the first call
        for package in _packages:
            _import_modules(package)
    registry = _decorated.copy()
    for entry in _entry_points(tuple(map(_modified_ns, sys.path))):
        if (key := (entry.name, entry.value)) not in _installed:
            with Collecting(Registry()) as installed:
                entry.load()
            _installed[key] = installed
        registry.include(_installed[key])
    return registry


@cache
def _import_modules(package: str) -> None:
    """Import all modules of a package, so that their decorators run."""
    import importlib
    import pkgutil

    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(module.name)


@lru_cache(maxsize=1)
def _entry_points(folders: tuple[tuple[str, int], ...]) -> EntryPoints:
    """Return the entry points of installed packages; reading them takes 7 ms, so only after a folder has changed."""
    from importlib.metadata import entry_points

    return entry_points(group="streamkit.stages")


def _modified_ns(folder: str) -> tuple[str, int]:
    """Return a folder of `sys.path` and when it last changed, 0 if it is missing."""
    try:
        return folder, os.stat(folder or ".").st_mtime_ns
    except OSError:
        return folder, 0


class Collecting:
    """Context in which `@stage`, `@family` and `@tracker` add to `registry`, not to the built-in stages.

    Used to load plugins.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def __enter__(self) -> Registry:
        global _target
        self._before = _target
        _target = self.registry
        return self.registry

    def __exit__(self, *error: object) -> None:
        global _target
        _target = self._before
