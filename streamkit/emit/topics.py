"""Topics and keys from templates such as `cameras/{source}/{label}`, filled for each record and cached."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from streamkit.core.text import did_you_mean

_MOST = 4096


class Topics:
    """Fills the templates of a topic and a key.

    Args:
        templates: texts with `{name}` in them, by the name of their option.
        known: the variable names, in the order of the values given to `fill`.
        clean: makes a value safe for a topic, in which some characters have a meaning.

    Raises:
        ValueError: a template has an unknown name or an unmatched brace.
    """

    def __init__(
        self, templates: dict[str, str], known: Sequence[str], clean: Callable[[str], str] = lambda text: text
    ) -> None:
        for option, template in templates.items():
            names = re.findall(r"\{([^{}]*)\}", template)
            if not template or re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", template)):
                raise ValueError(f"{option} must be text with names such as {{source}} in it, got {template!r}")
            for name in names:
                if name not in known:
                    way = did_you_mean(name, known, all_if_few=True)
                    raise ValueError(f"{option} has an unknown variable {{{name}}}{way}")
        self._clean = clean
        self._templates = list(templates.values())
        self._known = list(known)
        self._used = [i for i, name in enumerate(known) if any(f"{{{name}}}" in one for one in self._templates)]
        self._filled: dict[tuple[str, ...], list[bytes]] = {}

    @property
    def needed(self) -> int:
        """Number of leading values that the templates use."""
        return max(self._used, default=0) + 1

    def fill(self, values: Sequence[str]) -> list[bytes]:
        """Fill the templates with these values; returns UTF-8."""
        wanted = tuple([values[i] for i in self._used])
        found = self._filled.get(wanted)
        if found is None:
            if len(self._filled) >= _MOST:  # track numbers are unlimited
                self._filled.clear()
            found = self._filled[wanted] = [self._fill(one, wanted) for one in self._templates]
        return found

    def _fill(self, template: str, values: Sequence[str]) -> bytes:
        clean = {self._known[i]: self._clean(value) for i, value in zip(self._used, values, strict=True)}
        return re.sub(r"\{([^{}]*)\}", lambda match: clean[match[1]], template).encode("utf-8", "replace")
