# SPDX-License-Identifier: Apache-2.0
"""Formats of texts, such as number plates of a country: normalization, and repair of characters that look alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from streamkit.core.text import did_you_mean

NAMED: Mapping[str, str] = {
    "any": r"[A-Z0-9]{2,12}",
    "at": r"[A-Z]{1,2}(?:[0-9]{1,5}[A-Z]{1,3}|[A-Z]{1,5}[0-9]{1,4})",
    "be": r"[0-9]?(?:[A-Z]{3}[0-9]{3}|[0-9]{3}[A-Z]{3})",
    "ch": r"[A-Z]{2}[0-9]{1,6}",
    "container": r"[A-Z]{3}[UJZ][0-9]{7}",
    "de": r"[A-ZÄÖÜ]{1,3}[A-Z]{1,2}[0-9]{1,4}[EH]?",
    "es": r"[0-9]{4}[B-DF-HJ-NPR-TV-Z]{3}",
    "fr": r"[A-HJ-NP-TV-Z]{2}[0-9]{3}[A-HJ-NP-TV-Z]{2}",
    "it": r"[A-HJ-NPR-TV-Z]{2}[0-9]{3}[A-HJ-NPR-TV-Z]{2}",
    "nl": r"[A-Z]{2}[0-9]{3}[A-Z]|[A-Z][0-9]{3}[A-Z]{2}|[0-9]{1,2}[A-Z]{3}[0-9]{1,2}|[A-Z]{3}[0-9]{2}[A-Z]|"
    r"[A-Z][0-9]{2}[A-Z]{3}|[A-Z]{2}[0-9]{2}[A-Z]{2}|[0-9]{2}[A-Z]{2}[A-Z0-9]{2}|[A-Z]{2}[0-9]{4}|[A-Z]{4}[0-9]{2}",
    "pl": r"[A-Z]{2,3}[A-Z0-9]{4,5}",
    "uk": r"[A-HJ-PR-Y]{2}[0-9]{2}[A-HJ-PR-Z]{3}",
    "us": r"[A-Z0-9]{2,8}",
}
"""Regular expressions of texts without spaces and hyphens, by name: `any`, countries, and freight containers."""

LOOK_ALIKE: Mapping[str, str] = {
    "0": "OQD",
    "1": "ILT",
    "2": "Z",
    "4": "A",
    "5": "S",
    "6": "G",
    "7": "TZ",
    "8": "B",
    "O": "0Q",
    "Q": "0O",
    "D": "0O",
    "I": "1L",
    "L": "1I",
    "T": "17",
    "Z": "27",
    "A": "4",
    "S": "5",
    "G": "6",
    "B": "8",
}
"""What each character is mistaken for, the likeliest first."""

_PART_OF_MASK = re.compile(r"([A9* -])(\{\d+(?:,\d+)?\})?")
_MASK = re.compile(f"(?:{_PART_OF_MASK.pattern})+")
_OF_MASK = {"A": "[A-Z]", "9": "[0-9]", "*": "[A-Z0-9]", " ": "", "-": ""}
_MAX_REPAIRS = 3
_MAX_PLACES = 12  # a longer text would have too many variants


@dataclass(frozen=True)
class TextPattern:
    r"""A format of texts: a name of `NAMED`, a mask, or a regular expression for the whole text.

    In a mask `A` is a letter, `9` a digit and `*` either; `{1,3}` behind one says how many; spaces and hyphens are
    ignored, as in `A{1,3}-A{1,2} 9{1,4}`.

    Attributes:
        given: as the user wrote it.

    Raises:
        ValueError: it is none of these.
    """

    pattern: str
    _regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        name = self.pattern.lower()
        if self.pattern in NAMED:
            text = NAMED[self.pattern]
        elif name in NAMED:
            raise ValueError(f"names no known format: {self.pattern!r}; did you mean {name!r}?")
        elif _MASK.fullmatch(self.pattern):
            text = "".join(_OF_MASK[letter] + repeats for letter, repeats in _PART_OF_MASK.findall(self.pattern))
        elif self.pattern.isalpha() and self.pattern.islower():
            raise ValueError(
                f"names no known format: {self.pattern!r}{did_you_mean(self.pattern, NAMED, all_if_few=True)}"
            )
        else:
            text = self.pattern
        try:
            object.__setattr__(self, "_regex", re.compile(text))
        except (re.error, OverflowError, RecursionError) as error:
            names = ", ".join(NAMED)
            raise ValueError(
                f"must be a name ({names}), a mask such as AA-9999 or a regular expression, got {self.pattern!r}: "
                f"{error}"
            ) from None

    @property
    def letters(self) -> str | None:
        """The characters that texts may have besides ASCII ones; None if an expression has some of its own."""
        more = "".join(character for character in self._regex.pattern if not character.isascii())
        return None if more and self.pattern not in NAMED else more

    def matches(self, text: str) -> bool:
        """Whether a whole normalized text has the format."""
        return self._regex.fullmatch(text) is not None

    def repaired(self, text: str, scores: Sequence[float]) -> str | None:
        """Return the text in the format, with characters replaced by ones that look alike; None if it has another.

        As few characters as possible are replaced, at most three, and of these the least certain ones. In a long text
        only the twelve least certain characters that look like others are tried.

        Args:
            text: normalized.
            scores: how certain each character is.
        """
        if self.matches(text):
            return text
        return next((variant for variant in _variants(text, scores) if self.matches(variant)), None)


def _variants(text: str, scores: Sequence[float]) -> Iterator[str]:
    """Yield the texts with one, two and three characters replaced, those of uncertain characters first."""
    places = sorted((i for i, c in enumerate(text) if c in LOOK_ALIKE), key=lambda i: scores[i])[:_MAX_PLACES]
    places.sort()
    for count in range(1, min(_MAX_REPAIRS, len(places)) + 1):
        for chosen in sorted(combinations(places, count), key=lambda indices: sum(scores[i] for i in indices)):
            for letters in product(*(LOOK_ALIKE[text[i]] for i in chosen)):
                characters = list(text)
                for i, letter in zip(chosen, letters, strict=True):
                    characters[i] = letter
                yield "".join(characters)


def normalized(text: Sequence[str], scores: Sequence[float]) -> tuple[str, list[float]]:
    """Return a text in capitals with letters and digits only, and the score of each of its characters.

    Args:
        text: its characters; one may be several letters.
        scores: of each.
    """
    pairs = [
        (letter, score) for part, score in zip(text, scores, strict=True) for letter in part.upper() if letter.isalnum()
    ]
    return "".join(letter for letter, _ in pairs), [score for _, score in pairs]
