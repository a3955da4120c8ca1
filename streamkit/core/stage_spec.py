# SPDX-License-Identifier: Apache-2.0
"""The declaration of a stage: all capabilities that the system reads, in one frozen object."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """The declaration of a stage. `@stage(...)` creates it; undeclared attributes are inherited.

    `reads` and `writes` use these words: `pixels`, `tensor`, `outputs`, `detections`, `track_id`, `events`, or the name
    of a column.

    Attributes:
        name: the stage's name in the YAML.
        reads: what an earlier stage must write.
        writes: what the stage adds.
        reads_if: what else is read if an option is set, by option.
        writes_if: what else is written if an option is set, by option.
        emits: the kinds of the stage's events, if known in advance.
        changeable: options that may change while the pipeline runs.
        classes: options that name classes of objects; `check` rejects classes that no earlier detector finds.
        columns: columns that the stage adds to records, with their type in data sets: `float`, `int`, `text`, `flag`.
        device_copy: description of the stage's copies between host and device, for `graph`.
        unhide_option: the option that allows images to show what another stage hides; '' if there is none.
        warms_up: a batch stage that may be called with blank frames before the first one, to import and compile early.
        splits_tensor: a batch stage that accepts a tensor of more crops than one run of the network takes
            (`core/crops.py`).
        splits_outputs: a batch stage that accepts outputs as `LazyOutputs`, one run of the network at a time.
        on_device: a stream stage whose arrays are on the pipeline's device; its CUDA stream is current.
        draws_in_place: a batch stage that may draw on its input surfaces if no other stage reads them.
        has_rules: the option `rules` holds rules, which `check` reads.
        reads_packets: a source that decodes packets and calls `context.runtime.on_packet` with each.
        has_pace: a source with the option `pace`; `realtime` plays a recording at the speed of a camera.
        labels_attribute: the attribute, of a stage that writes detections without a model, with the names of their
            classes: a tuple, or None if they are unknown before the run.
        input_file: the option that names a file to read for each source; `check` calls `read(source)` of the stage,
            whose result has `chosen`: whether the file has several sources, and `source` is one of them.
        target: the option that names a stage's output, '' if it has none. With `{source}` in it, each source has its
            own instance of a sink; otherwise one instance receives all sources.
        one_source: a sink whose output can hold one source only.
        wants_packets: a sink that needs the packets of the sources, of each the last `buffer` bytes; see
            `FrameState.packet_ref`.
        may_drop: a sink with its own thread for each source. Frames that arrive while it is busy are dropped and
            counted; the pipeline never waits for it.
        late_results: a stage whose results arrive after the frames they are about. The last frame of a file waits for
            them: the runner polls its `settled(source)`, for at most `drain_timeout` seconds.
        selects_events: the option `when` names events of stages above, as that of every sink does.
        on_demand: a sink whose method `trigger` starts an output on request.
        names_sources: the stage has options that name sources: its method `named_sources` yields them, and `check`
            rejects names that no source has.
        scope: `source` if the stage treats each source on its own, so that several processes may run it, each with a
            part of the sources; `pipeline` if it looks across sources, so that one process runs it, and all stages
            below it, for all sources. See `scope_of` for the default.
        built_in: whether the stage is part of streamkit; set by `declare`. The runner isolates other stages.
    """

    name: str = ""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    reads_if: Mapping[str, str] = field(default_factory=dict)
    writes_if: Mapping[str, str] = field(default_factory=dict)
    emits: tuple[str, ...] = ()
    changeable: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    device_copy: str = ""
    unhide_option: str = ""
    warms_up: bool = False
    splits_tensor: bool = False
    splits_outputs: bool = False
    on_device: bool = False
    draws_in_place: bool = False
    has_rules: bool = False
    reads_packets: bool = False
    has_pace: bool = False
    labels_attribute: str = ""
    input_file: str = ""
    target: str = "path"
    one_source: bool = False
    wants_packets: bool = False
    may_drop: bool = False
    late_results: bool = False
    selects_events: bool = False
    on_demand: bool = False
    names_sources: bool = False
    scope: Literal["source", "pipeline"] | None = None
    built_in: bool = False


NAMES = frozenset(field_of_spec.name for field_of_spec in fields(StageSpec)) - {"built_in"}
_TUPLES = frozenset({"reads", "writes", "emits", "changeable", "classes"})


def declare(kind: type[Any], declared: Mapping[str, Any]) -> StageSpec:
    """Return the spec of a class: its declarations and those of its bases. None inherits; a string is one word.

    Raises:
        TypeError: a name is unknown, or is set as a class attribute.
    """
    if unknown := sorted(declared.keys() - NAMES):
        raise TypeError(
            f"{kind.__name__}: a stage cannot declare {', '.join(unknown)}; known: {', '.join(sorted(NAMES))}"
        )
    namespace = vars(kind)
    options = {name for name, text in _annotations(kind).items() if "ClassVar" not in str(text)}
    if loose := sorted((NAMES - {"name"}) & namespace.keys() - options):
        raise TypeError(
            f'{kind.__name__}: declare {loose[0]} in the decorator, as in @stage("my_stage", {loose[0]}=...), or in '
            f"the class line of a base class, as in class {kind.__name__}({kind.__mro__[1].__name__}, {loose[0]}=...)"
        )
    if declared.get("scope") not in (None, "source", "pipeline"):
        raise TypeError(f"{kind.__name__}: scope must be 'source' or 'pipeline', got {declared['scope']!r}")
    settings = {name: value for name, value in declared.items() if value is not None}
    if isinstance(namespace.get("name"), str):  # a class that the YAML names elsewhere, such as a format of `batch`
        settings.setdefault("name", namespace["name"])
    kind._declared = {
        name: (value,) if isinstance(value, str) and name in _TUPLES else tuple(value) if name in _TUPLES else value
        for name, value in {**namespace.get("_declared", {}), **settings}.items()
    }
    merged: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        merged |= vars(base).get("_declared", {})
    return StageSpec(**merged, built_in=kind.__module__.startswith("streamkit."))


def _annotations(kind: type[Any]) -> dict[str, Any]:
    """The annotations of a class itself, without those of its bases; a name that does not exist is no error."""
    if sys.version_info >= (3, 14):  # where they are evaluated when they are read
        import annotationlib

        return annotationlib.get_annotations(kind, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(kind)
