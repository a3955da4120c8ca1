"""Names of events, as options such as `when` have them: STAGE.KIND, or STAGE for all of a stage's events.

Of a stage with several rules STAGE.RULE.KIND is the event of one of them.
"""

from __future__ import annotations

from collections.abc import Collection

from streamkit.core.data import Event


class EventFilter:
    """The events that an option names.

    Args:
        when: a name, or several, or None for no event.
    """

    def __init__(self, when: str | Collection[str] | None) -> None:
        self._names = frozenset([when] if isinstance(when, str) else when or ())

    def __contains__(self, event: Event) -> bool:
        if event.stage in self._names or f"{event.stage}.{event.kind}" in self._names:
            return True
        return "rule" in event.data and f"{event.stage}.{event.data['rule']}.{event.kind}" in self._names
