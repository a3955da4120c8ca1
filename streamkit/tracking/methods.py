# SPDX-License-Identifier: Apache-2.0
"""The built-in methods of `track`, and the option type that names a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from streamkit.core.options import PluginNames
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.tracker import BatchTracker, TrackerMethod

if TYPE_CHECKING:
    from collections.abc import Iterable


def _start_compiled(settings: TrackerSettings) -> BatchTracker:
    from streamkit.tracking.compiled_tracker import CompiledTracker

    return CompiledTracker(settings)


def _compiled(name: str, summary: str, *, camera_motion: bool | Literal["auto"] = False, **steps: Any) -> TrackerMethod:
    """Declare a built-in method by its difference from ByteTrack."""
    return TrackerMethod(
        name=name,
        summary=summary,
        start=_start_compiled,
        origin=(__file__, name),
        steps=steps,
        compiled=True,
        camera_motion=camera_motion,
    )


BUILT_IN: dict[str, TrackerMethod] = {
    method.name: method
    for method in (
        _compiled("bytetrack", "Match strong objects to all tracks, then weak ones to tracks that were just seen."),
        _compiled(
            "botsort",
            "Do as bytetrack, smooth the boxes, and compensate the motion of the camera.",
            camera_motion="auto",
            smooth=True,
        ),
        _compiled(
            "auto",
            "Do as bytetrack, and compensate the motion of cameras that are measured to move.",
            camera_motion="auto",
        ),
        _compiled("ocsort", "Prefer observations to predictions.", two_rounds=False, recover=True, heading=0.1),
        _compiled("sort", "Use strong objects only.", two_rounds=False),
        _compiled("iou", "Use strong objects and their last boxes, without motion.", two_rounds=False, motion=False),
    )
}
"""The built-in methods by name."""


@dataclass(frozen=True)
class _MethodReference(PluginNames):
    """Annotation of an option that names a method; validation gives a plugin's `TrackerMethod`, or a built-in name."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(self._method)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        return {"type": "string", "enum": list(self.built_in)}

    def _method(self, value: Any, info: Any) -> str | TrackerMethod:
        plugins: Mapping[str, TrackerMethod] = (info.context or {}).get("trackers", {})
        if isinstance(value, TrackerMethod):
            return value
        if isinstance(value, str) and value in plugins:
            return plugins[value]
        if value in self.built_in:
            return str(value)
        raise self.unknown({**BUILT_IN, **plugins})


MethodName = Annotated[str | TrackerMethod, _MethodReference("trackers", tuple(BUILT_IN))]
"""A method of `track`: a built-in one by name, or one of a plugin."""


def resolve_method(method: str | TrackerMethod) -> TrackerMethod:
    """Return the method of a name.

    Raises:
        ValueError: there is no built-in method of that name.
    """
    if isinstance(method, TrackerMethod):
        return method
    if method not in BUILT_IN:
        raise ValueError(f"method must be one of {_listed(BUILT_IN)}, or a method of a plugin, got {method!r}")
    return BUILT_IN[method]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
