# SPDX-License-Identifier: Apache-2.0
"""One text from several readings of it: votes for each character, weighted by how good each reading is.

Readings of small or blurred text are rarely wrong in the same place, and seldom right everywhere: votes for whole
texts need one perfect reading, votes for characters do not. The readings are aligned with the best one, so that a
character that is missing or too much in some does not shift the others; after ROVER (Fiscus, A post-processing system
to yield reduced word error rates, ASRU 1997).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_MOST = 32  # readings that are kept; the weakest goes first


class Vote(NamedTuple):
    """The outcome of a vote.

    Attributes:
        text: the text.
        scores: how certain each character is, 0..1: the share of the weight that its votes have, times the mean score
            of these votes.
        agreeing: number of readings that are the text.
    """

    text: str
    scores: tuple[float, ...]
    agreeing: int

    @property
    def score(self) -> float:
        """The score of the least certain character; 0 without a character."""
        return min(self.scores, default=0.0)


class _Ballot(NamedTuple):
    text: str
    scores: tuple[float, ...]
    weight: float


@dataclass(slots=True)
class TextVotes:
    """The readings of one text."""

    _ballots: list[_Ballot] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._ballots)

    def add(self, text: str, scores: Sequence[float], weight: float) -> None:
        """Add a reading.

        Args:
            text: what was read.
            scores: of each character, 0..1.
            weight: how good the view is, above 0; only ratios of weights count.
        """
        self._ballots.append(_Ballot(text, tuple(scores), weight))
        if len(self._ballots) > _MOST:
            self._ballots.remove(min(self._ballots, key=_strength))

    def result(self) -> Vote:
        """Return the text with the most votes in each place."""
        if not self._ballots:
            return Vote("", (), 0)
        best = max(self._ballots, key=_strength)
        columns: dict[tuple[int, bool], dict[str, float]] = {}
        for one in self._ballots:
            for place, letter, score in _aligned(best.text, one):
                column = columns.setdefault(place, defaultdict(float))
                column[letter] += one.weight * score
        total = sum(one.weight for one in self._ballots)
        text, scores = "", []
        for place in sorted(columns):
            votes, letter = max((votes, letter) for letter, votes in columns[place].items())
            if letter and (place[1] or votes > total / 2):  # a character that the best reading lacks needs most votes
                text += letter
                scores.append(votes / total)
        return Vote(text, tuple(scores), sum(one.text == text for one in self._ballots))


def _strength(ballot: _Ballot) -> float:
    """Return how much a reading counts as a whole."""
    return ballot.weight * sum(ballot.scores) / max(1, len(ballot.scores))


def _aligned(best: str, one: _Ballot) -> list[tuple[tuple[int, bool], str, float]]:
    """Align a reading with the best one, by the fewest differences.

    Returns:
        Places with the reading's character, '' for none, and its score. A place is the number of a character of the
        best text and True; or False for what stands before that character.
    """
    rows, columns = len(best) + 1, len(one.text) + 1
    cost = [[i + j if not i or not j else 0 for j in range(columns)] for i in range(rows)]
    for i in range(1, rows):
        for j in range(1, columns):
            other = best[i - 1] != one.text[j - 1]
            cost[i][j] = min(cost[i - 1][j - 1] + other, cost[i - 1][j] + 1, cost[i][j - 1] + 1)
    found: list[tuple[tuple[int, bool], str, float]] = []
    i, j, mean = rows - 1, columns - 1, sum(one.scores) / max(1, len(one.scores))
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (best[i - 1] != one.text[j - 1]):
            i, j = i - 1, j - 1
            found.append(((i, True), one.text[j], one.scores[j]))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            found.append(((i, True), "", mean))
        else:
            j -= 1
            found.append(((i, False), one.text[j], one.scores[j]))
    return found
