# SPDX-License-Identifier: Apache-2.0
"""What the sender of a request may see of the sources; everything is open to the server's own threads."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from streamkit.config.plan import SourceConfig
from streamkit.runtime.run import Run
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.identity import IDENTITY, Identity, may_see
from streamkit.serve.problem_groups import Incident

ANOTHER = "another camera"
"""What stands for a source that may not be seen."""


class SourceRights:
    """Applies `may_see` to the sources of a run. Thread-safe.

    Args:
        running: the run, whose graph an edit of the YAML may replace.
    """

    def __init__(self, running: Run) -> None:
        self._running = running

    @property
    def limited(self) -> bool:
        """Whether the sender of the request may not see all sources."""
        identity = IDENTITY.get()
        return identity is not None and identity.groups is not None

    def sees(self, id_: str) -> bool:
        """Whether the sender of the request may see a source."""
        return not self.limited or may_see(IDENTITY.get(), self._configured().get(id_))

    def allows(self, identity: Identity, id_: str) -> bool:
        """Whether a person or token may see a source, whoever asks."""
        return may_see(identity, self._configured().get(id_))

    def visible(self) -> frozenset[str] | None:
        """The ids of the sources that the sender of the request may see; None for all, also those that are gone."""
        if not self.limited:
            return None
        identity = IDENTITY.get()
        return frozenset(id_ for id_, source in self._configured().items() if may_see(identity, source))

    def hidden_ids(self) -> frozenset[str]:
        """The ids of the sources that the sender of the request may not see, also of those that were removed."""
        visible = self.visible()
        if visible is None:
            return frozenset()
        return (frozenset(self._configured()) | frozenset(list(self._running.states))) - visible

    def names_hidden(self, text: str) -> bool:
        """Whether a text names a source that the sender of the request may not see, by its id or its name."""
        hidden = self.hidden_ids()
        return bool(hidden) and _named_in(text, self._words(hidden))

    def redacted(self, value: Any) -> Any:
        """A value of an event without the sources that the sender of the request may not see; a journey names some."""
        hidden = self.hidden_ids()
        return _redacted(value, _pattern(self._words(hidden))) if hidden else value

    def may_read(self, text: str) -> bool:
        """Whether the sender of the request may read a message: with a limit, it names visible sources only."""
        visible = self.visible()
        return visible is None or (_named_in(text, self._words(visible)) and not self.names_hidden(text))

    def sees_problem(self, incident: Incident) -> bool:
        """Whether the sender of the request may know of an incident: of a visible source, or of the whole pipeline."""
        if incident.source is not None:
            return self.sees(incident.source)
        return not self.names_hidden(f"{incident.text} {incident.cause} {incident.stage or ''}")

    def check_group(self, source: SourceConfig) -> None:
        """Check that the sender of the request may see a source that is to be added or changed.

        Raises:
            RequestRejected: it is not in one of the sender's groups.
        """
        identity = IDENTITY.get()
        if identity is None or identity.groups is None or may_see(identity, source):
            return
        groups = ", ".join(sorted(identity.groups)) or "none"
        raise RequestRejected(403, f"set the option group to one of your camera groups: {groups}")

    def check_unlimited(self, what: str) -> None:
        """Check that the sender of the request may see all sources. Raises RequestRejected, which says what needs it.

        Args:
            what: the subject of the sentence, such as `a setting`.
        """
        if self.limited:
            raise RequestRejected(403, f"{what} concerns all cameras, and you may see some groups only: ask an admin")

    def _configured(self) -> dict[str, SourceConfig]:
        return {source.id: source for source in list(self._running.graph.sources)}

    def _words(self, ids: Collection[str]) -> frozenset[str]:
        """The ids of sources, and what people call them."""
        configured = self._configured()
        names = {configured[id_].details.name for id_ in ids if id_ in configured}
        return frozenset(ids) | (names - {""})


def _named_in(text: str, words: frozenset[str]) -> bool:
    return bool(words) and _pattern(words).search(text) is not None


def _redacted(value: Any, hidden: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return hidden.sub(ANOTHER, value)
    if isinstance(value, Mapping):
        return {_redacted(key, hidden): _redacted(part, hidden) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(part, hidden) for part in value]
    return value


@lru_cache(maxsize=64)
def _pattern(words: frozenset[str]) -> re.Pattern[str]:
    """Finds one of the words between other signs than letters and digits."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(map(re.escape, longest_first))})(?![^\W_])", re.IGNORECASE)
