# SPDX-License-Identifier: Apache-2.0
"""One text from several readings of it: votes for each character, weighted by how good each reading is.

Readings of small or blurred text are rarely wrong in the same place, and seldom right everywhere: votes for whole
texts need one perfect reading, votes for characters do not. The readings are aligned with the best one, so that a
character that is missing or too much in some does not shift the others; after ROVER (Fiscus, A post-processing system
to yield reduced word error rates, ASRU 1997). A vote with the probability p weighs -log(1 - p): independent readings
multiply the probability of an error, so their weights add up.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_MOST = 32  # readings that are kept; the weakest goes first
_LEAST, _MOST_SURE = 1e-3, 0.9999  # bounds of a probability as evidence


class Vote(NamedTuple):
    """The outcome of a vote.

    Attributes:
        text: the text.
        scores: how certain each character is, 0..1: the share of all weight that its votes have, times the mean
            probability of these votes.
        agreeing: number of readings that are the text.
        margin: how far the text is ahead of the second-best one, 0..1: the mean over all readings, by their weight; 0
            counts for a reading of another text.
    """

    text: str
    scores: tuple[float, ...]
    agreeing: int
    margin: float = 0.0

    @property
    def score(self) -> float:
        """The score of the least certain character; 0 without a character."""
        return min(self.scores, default=0.0)


class _Ballot(NamedTuple):
    text: str
    scores: tuple[float, ...]
    weight: float
    margin: float

    @property
    def mean(self) -> float:
        return sum(self.scores) / max(1, len(self.scores))


class _CharacterVote(NamedTuple):
    letter: str
    score: float
    weight: float


_Place = tuple[int, bool]
"""A character of the best reading, by its number and True; or False for what stands before that character."""


@dataclass(slots=True)
class TextVotes:
    """The readings of one text."""

    _ballots: list[_Ballot] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._ballots)

    def add(self, text: str, scores: Sequence[float], weight: float, margin: float = 1.0) -> None:
        """Add a reading.

        Args:
            text: what was read.
            scores: of each character, 0..1.
            weight: how good the view is, above 0; only ratios of weights count.
            margin: how far this text is ahead of the second-best one in the reading, 0..1.
        """
        self._ballots.append(_Ballot(text, tuple(scores), weight, margin))
        if len(self._ballots) > _MOST:
            self._ballots.remove(min(self._ballots, key=_strength))

    def result(self) -> Vote:
        """Return the text with the most votes in each place."""
        if not self._ballots:
            return Vote("", (), 0)
        best = max(self._ballots, key=_strength)
        votes: dict[_Place, list[_CharacterVote]] = defaultdict(list)
        cast = [_aligned(best.text, ballot) for ballot in self._ballots]
        for ballot, each in zip(self._ballots, cast, strict=True):
            for place, letter, score in each:
                votes[place].append(_CharacterVote(letter, score, ballot.weight))
        for ballot, each in zip(self._ballots, cast, strict=True):
            for place in votes.keys() - {place for place, _, _ in each}:
                votes[place].append(_CharacterVote("", ballot.mean, ballot.weight))
        winners = [_winner(votes[place]) for place in sorted(votes)]
        text = "".join(letter for letter, _ in winners)
        scores = tuple(score for letter, score in winners if letter)
        agreeing = [ballot for ballot in self._ballots if ballot.text == text]
        margin = sum(ballot.margin * ballot.weight for ballot in agreeing)
        return Vote(text, scores, len(agreeing), margin / sum(ballot.weight for ballot in self._ballots))


def _evidence(score: float) -> float:
    """Return the weight of a probability."""
    return -math.log(1 - min(max(score, _LEAST), _MOST_SURE))


def _strength(ballot: _Ballot) -> float:
    """Return how much a reading counts as a whole."""
    return ballot.weight * _evidence(ballot.mean)


def _winner(votes: Sequence[_CharacterVote]) -> tuple[str, float]:
    """Return the character of a place, '' for none, and how certain it is."""
    total: dict[str, float] = defaultdict(float)
    for one in votes:
        total[one.letter] += one.weight * _evidence(one.score)
    letter = max(total, key=lambda one: (total[one], one))
    mine = [one for one in votes if one.letter == letter]
    mean = sum(one.score * one.weight for one in mine) / sum(one.weight for one in mine)
    return letter, mean * total[letter] / sum(total.values())


def _aligned(best: str, one: _Ballot) -> list[tuple[_Place, str, float]]:
    """Align a reading with the best one by the fewest differences; return places, characters ('' for none), scores."""
    rows, columns = len(best) + 1, len(one.text) + 1
    cost = [[i + j if not i or not j else 0 for j in range(columns)] for i in range(rows)]
    for i in range(1, rows):
        for j in range(1, columns):
            other = best[i - 1] != one.text[j - 1]
            cost[i][j] = min(cost[i - 1][j - 1] + other, cost[i - 1][j] + 1, cost[i][j - 1] + 1)
    found: list[tuple[_Place, str, float]] = []
    i, j = rows - 1, columns - 1
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (best[i - 1] != one.text[j - 1]):
            i, j = i - 1, j - 1
            found.append(((i, True), one.text[j], one.scores[j]))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            found.append(((i, True), "", one.mean))
        else:
            j -= 1
            found.append(((i, False), one.text[j], one.scores[j]))
    return found
