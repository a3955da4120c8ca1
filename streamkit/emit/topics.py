# SPDX-License-Identifier: Apache-2.0
"""Topics and keys from templates such as `cameras/{source}/{label}`, filled for each record and cached."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from streamkit.core.text import did_you_mean

_CACHE_SIZE = 4096


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
        self, templates: dict[str, str], variables: Sequence[str], clean: Callable[[str], str] = lambda text: text
    ) -> None:
        for option, template in templates.items():
            names = re.findall(r"\{([^{}]*)\}", template)
            if not template or re.search(r"[{}]", re.sub(r"\{[^{}]*\}", "", template)):
                raise ValueError(f"{option} must be text with names such as {{source}} in it, got {template!r}")
            for name in names:
                if name not in variables:
                    hint = did_you_mean(name, variables, all_if_few=True)
                    raise ValueError(f"{option} has an unknown variable {{{name}}}{hint}")
        self._clean = clean
        self._templates = list(templates.values())
        self._variables = list(variables)
        self._used = [
            i for i, name in enumerate(variables) if any(f"{{{name}}}" in template for template in self._templates)
        ]
        self._filled = lru_cache(_CACHE_SIZE)(self._fill)  # track numbers are unlimited

    @property
    def needed(self) -> int:
        """Number of leading values that the templates use."""
        return max(self._used, default=0) + 1

    def fill(self, values: Sequence[str]) -> list[bytes]:
        """Fill the templates with these values; returns UTF-8."""
        return self._filled(tuple([values[i] for i in self._used]))

    def _fill(self, values: tuple[str, ...]) -> list[bytes]:
        clean = {self._variables[i]: self._clean(value) for i, value in zip(self._used, values, strict=True)}
        filled = (re.sub(r"\{([^{}]*)\}", lambda match: clean[match[1]], template) for template in self._templates)
        return [text.encode("utf-8", "replace") for text in filled]
