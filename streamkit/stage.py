"""The contract of a stage: kinds, options, and the registry that stages are found in.

A stage is a class. Its annotated fields are its options, its docstring the help, and its kind a promise to the
runner. Built-in stages and plugins come in by the same door:

    @stage("tripwire", reads="track_id", writes="events")
    class Tripwire(FrameStage):
        '''Emit `crossed` when a track's foot point changes side of the line.

        Options:
            line: the line's two ends.
        '''

        line: tuple[Point, Point]

        def process(self, frame): ...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from streamkit.ahead import Ahead, Later
from streamkit.counters import Counters
from streamkit.data import Batch, Device, Frame
from streamkit.errors import ConfigError
from streamkit.options import Option, check_names, options, summary
from streamkit.retry import Retry
from streamkit.spans import Spans
from streamkit.units import Bytes, Count, Pixels, Point, Score, Seconds

if TYPE_CHECKING:
    from streamkit.media.ring import Ring

__all__ = [
    "BatchStage", "Bytes", "Composite", "Context", "Count", "FrameStage", "Option", "Part", "Pixels", "Point",
    "Registry", "Score", "Seconds", "Sink", "Source", "Stage", "StreamStage", "default_registry", "options", "stage",
    "summary",
]  # fmt: skip


@dataclass(slots=True)
class Context:
    """What the runner tells an instance before `open`.

    Attributes:
        id: the stage's id in the YAML; a source's id for a source.
        device: where the pipeline's arrays live.
        batch_sizes: the sizes a batch may have, rising; partial batches are padded to one of them.
        threads: how many CPU threads the instance may use for itself.
        counters: for anything that must not happen silently.
        say: report a message to the user, once for each text.
        addresses: the address of each source by its id, for what reads a source's own packets.
        spans: for what should stand in the timeline of a run with `--profile`.
        on_packet: a source that `reads_packets` calls it with each `av.Packet` first; it may change the bytes in place.
        ahead: for parts of a source's work that can be done before their turn comes.
        later: for what need not be there when the first frame comes.
        status: for a source: what it is doing (connecting, running, reconnecting, paused, ended, failed), the cause in
            a word (one of `SourceError.CAUSES`) or None, and the same in a sentence.
        packets: a source that `reads_packets` puts each one there; None where no stage writes packets.
        facts: where a source puts what it knows of itself: codec, width, height, fps, frames, duration_s.
        streams: by source id, the number of the video stream, where the source's option `stream` is set.
    """

    id: str = ""
    device: Device = field(default_factory=Device)
    batch_sizes: tuple[int, ...] = (1,)
    threads: int = 1
    counters: Counters = field(default_factory=Counters)
    say: Callable[[str], None] = lambda text: None
    addresses: Mapping[str, str] = field(default_factory=dict)
    spans: Spans = field(default_factory=Spans)
    on_packet: Callable[[Any], None] | None = None
    ahead: Ahead = field(default_factory=Ahead)
    later: type[Later[Any]] = Later
    status: Callable[[str, str | None, str], None] = lambda state, cause, words: None
    packets: Ring | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)


class Stage:
    """The base of every kind. `open` and `close` are optional; `close` runs if `open` did.

    Never two calls at once on one instance, and an instance stays on its thread. `changeable` names the options that
    may change while the pipeline runs, `emits` the kinds of its events where they are known beforehand, `reads_if`
    options, and what else is read where one is set. A batch stage that `warms_up` may be called with blank frames
    before the first real one, so that it imports and compiles nothing later.
    """

    name: ClassVar[str] = ""
    reads: ClassVar[tuple[str, ...]] = ()
    writes: ClassVar[tuple[str, ...]] = ()
    reads_if: ClassVar[Mapping[str, str]] = {}
    emits: ClassVar[tuple[str, ...]] = ()
    changeable: ClassVar[tuple[str, ...]] = ()
    warms_up: ClassVar[bool] = False
    context: Context = Context()

    def probe(self) -> None:
        """Refuse what cannot work here, such as a package or an encoder that is not there. Called before `open`."""

    def open(self) -> None:
        """Acquire what processing needs: models, files, buffers."""

    def changed(self) -> None:
        """Options that are `changeable` have new values: work out anew what follows from them. Between two batches."""

    def close(self) -> None:
        """Let go of it."""


class Source(Stage):
    """Makes frames, in order; ends by returning. One instance a source, on a thread of its own.

    `reads_packets` says that it decodes packets and calls `context.on_packet` with each; `has_pace` that it has an
    option `pace`, with which `realtime` plays a recording as a camera would.
    """

    reads_packets: ClassVar[bool] = False
    has_pace: ClassVar[bool] = False

    @property
    def unbounded(self) -> bool:
        """Whether it keeps a pace of its own or has no end. Others, such as whole files, may wait for their turn."""
        return False

    @property
    def retry(self) -> Retry | None:
        """How the runner is to open it again when it fails, or ends though it is live; None leaves it closed."""
        return None

    def stop(self) -> None:
        """Asked to end soon, from another thread: leave waits early. The runner takes no frame after it."""

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in order."""
        raise NotImplementedError


class BatchStage(Stage):
    """Works on whole batches and keeps nothing between them.

    A batch mixes sources in any way. Arrays are on the pipeline's device, its CUDA stream is the current one. The
    runner may make several instances; it puts the batches back in order.
    """

    def process(self, batch: Batch) -> Batch:
        """Return the batch with what this stage adds."""
        raise NotImplementedError


class StreamStage(Stage):
    """Sees every source's frames in order, all sources of a batch in one call; on the host.

    `states` holds one state object a source, made by `new_state`, dropped when the source ends. With several devices
    each has an instance of its own, which sees the sources of its device only.
    """

    def new_state(self, source: str) -> Any:
        """The state of a source that has just begun."""
        return None

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Return the batch with what this stage adds."""
        raise NotImplementedError

    def end(self, source: str, state: Any) -> None:
        """No frame of `source` will come any more; its state is dropped."""


class FrameStage(Stage):
    """Sees one source's frames in order, on the host: the easy form. One instance a source."""

    def process(self, frame: Frame) -> None:
        """Change `frame.detections`, or `frame.emit(...)`."""
        raise NotImplementedError


class Sink(Stage):
    """Comes last: writes frames out, in order for each source; hands on what it was given.

    A sink that can make what it writes for a whole batch at once, which is faster than frame by frame, has `encode`.

    Attributes:
        target: the option that says where it writes. With `{source}` in it each source has an instance of its own;
            without such an option one instance has all sources.
        wants_packets: the packets of the sources are kept for it, `buffer` bytes of each; see `Frame.packet`.
        may_drop: it has a thread of its own for each source and may take its time: frames that come meanwhile are
            dropped and counted, and nobody waits for it.
    """

    target: ClassVar[str] = "path"
    wants_packets: ClassVar[bool] = False
    may_drop: ClassVar[bool] = False

    def write(self, frame: Frame) -> None:
        """Write one frame."""
        raise NotImplementedError

    @staticmethod
    def encode(batch: Batch) -> list[Any] | None:
        """What is to be written for each frame, made for all at once; `write_encoded` then takes the place of `write`.

        The batch's tables are on the host, and the frames' own are not filled. None where a sink has no such way.
        """
        return None

    def write_encoded(self, frame: Frame, encoded: Any) -> None:
        """Write what `encode` made for this frame."""
        raise NotImplementedError

    def flush(self) -> None:
        """A batch's frames are written and not handed on yet: do what is better done for all of them at once."""

    def end(self, source: str) -> None:
        """No frame of `source` will come any more."""


@dataclass(frozen=True, slots=True)
class Part:
    """One stage of a composite: `detect.infer` is the part `infer` of the stage `detect`."""

    name: str
    type: type[Stage]
    options: dict[str, Any]


class Composite(Stage):
    """Stands for several stages in a chain. Never runs itself."""

    def parts(self) -> list[Part]:
        """The stages this one stands for, in order."""
        raise NotImplementedError


_KINDS = (Source, BatchStage, StreamStage, FrameStage, Sink, Composite)
KINDS: dict[str, type[Stage]] = {kind.__name__: kind for kind in _KINDS}
_Kind = TypeVar("_Kind", bound=type[Stage])


class Registry:
    """The stages that a pipeline may name. A value: tests make their own."""

    def __init__(self, stages: Mapping[str, type[Stage]] | None = None) -> None:
        self._stages: dict[str, type[Stage]] = dict(stages or {})

    def add(self, kind: type[Stage]) -> None:
        """Add a stage under its name. It may take a built-in one's place; of others' a second claim is refused."""
        known = self._stages.get(kind.name)
        if known is not None and _origin(known) != _origin(kind) and (ships(kind) or not ships(known)):
            one, other = (f"{claims.__qualname__} in {claims.__module__}" for claims in (known, kind))
            raise ConfigError(f"two stages claim the name {kind.name!r}: {one} and {other}; rename one of them")
        self._stages[kind.name] = kind

    def get(self, name: str) -> type[Stage] | None:
        """The stage of that name, or None."""
        return self._stages.get(name)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._stages)

    def copy(self) -> Registry:
        """A registry of its own with the same stages."""
        return Registry(self._stages)


def _origin(kind: type[Stage]) -> tuple[str, str]:
    """The file and name of a class: a plugin that a test has imported as well is still the same one."""
    module = sys.modules.get(kind.__module__)
    return getattr(module, "__file__", None) or kind.__module__, kind.__qualname__


def ships(kind: type[Stage]) -> bool:
    """Whether a stage is built in."""
    return kind.__module__.startswith("streamkit.stages.")


_decorated = Registry()
_target: Registry = _decorated


@dataclass_transform()
def stage(
    name: str, *, reads: str | tuple[str, ...] | None = None, writes: str | tuple[str, ...] | None = None
) -> Callable[[_Kind], _Kind]:
    """Make a class a stage: a dataclass whose fields are options, known by `name`.

    Args:
        name: the word a YAML uses.
        reads: what must be there before it: `pixels`, `tensor`, `outputs`, `detections`, `track_id`, or the name of
            an extra column; where it is not given, what the class it derives from reads.
        writes: what it adds, in the same words, or `events`; likewise.
    """
    if not isinstance(name, str):  # `@stage` alone, with the class in the name's place
        raise TypeError('@stage needs the word that a YAML uses for the stage: write @stage("my_stage")')

    def decorate(kind: _Kind) -> _Kind:
        base = next((base for base in _KINDS if issubclass(kind, base)), None)
        if base is None:
            raise TypeError(f"stage {name!r}: {kind.__name__} must be one of the kinds {', '.join(KINDS)}")
        made: _Kind = dataclass(kind, eq=False)  # type: ignore[assignment]
        made.name = name
        check_names(made, base, source=base is Source)
        made.reads = _words(reads, made.reads)
        made.writes = _words(writes, made.writes)
        _target.add(made)
        return made

    return decorate


def _words(given: str | tuple[str, ...] | None, inherited: tuple[str, ...]) -> tuple[str, ...]:
    words = (given,) if isinstance(given, str) else given
    return inherited if words is None else tuple(words)


def default_registry() -> Registry:
    """A registry with the built-in stages, and those of installed packages (entry point group `streamkit.stages`)."""
    import importlib
    import pkgutil
    from importlib.metadata import entry_points

    package = importlib.import_module("streamkit.stages")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"streamkit.stages.{module.name}")
    registry = _decorated.copy()
    for entry in entry_points(group="streamkit.stages"):
        with Collecting(registry):
            entry.load()
    return registry


class Collecting:
    """Within this context `@stage` adds to `registry` instead of the built-in set. Used to load plugins."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def __enter__(self) -> Registry:
        global _target
        self._before, _target = _target, self.registry
        return self.registry

    def __exit__(self, *error: object) -> None:
        global _target
        _target = self._before
