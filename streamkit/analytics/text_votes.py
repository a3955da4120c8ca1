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

_MAX_READINGS = 32  # readings that are kept; the weakest goes first
# bounds of a probability as evidence
_MIN_PROBABILITY = 1e-3
_MAX_PROBABILITY = 0.9999


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
        if len(self._ballots) > _MAX_READINGS:
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
    return -math.log(1 - min(max(score, _MIN_PROBABILITY), _MAX_PROBABILITY))


def _strength(ballot: _Ballot) -> float:
    """Return how much a reading counts as a whole."""
    return ballot.weight * _evidence(ballot.mean)


def _winner(votes: Sequence[_CharacterVote]) -> tuple[str, float]:
    """Return the character of a place, '' for none, and how certain it is."""
    total: dict[str, float] = defaultdict(float)
    for vote in votes:
        total[vote.letter] += vote.weight * _evidence(vote.score)
    letter = max(total, key=lambda character: (total[character], character))
    agreeing = [vote for vote in votes if vote.letter == letter]
    mean = sum(vote.score * vote.weight for vote in agreeing) / sum(vote.weight for vote in agreeing)
    return letter, mean * total[letter] / sum(total.values())


def _aligned(best: str, ballot: _Ballot) -> list[tuple[_Place, str, float]]:
    """Align a reading with the best one by the fewest differences; return places, characters ('' for none), scores."""
    rows = len(best) + 1
    columns = len(ballot.text) + 1
    cost = [[i + j if not i or not j else 0 for j in range(columns)] for i in range(rows)]
    for i in range(1, rows):
        for j in range(1, columns):
            other = best[i - 1] != ballot.text[j - 1]
            cost[i][j] = min(cost[i - 1][j - 1] + other, cost[i - 1][j] + 1, cost[i][j - 1] + 1)
    places: list[tuple[_Place, str, float]] = []
    i = rows - 1
    j = columns - 1
    while i or j:
        if i and j and cost[i][j] == cost[i - 1][j - 1] + (best[i - 1] != ballot.text[j - 1]):
            i = i - 1
            j = j - 1
            places.append(((i, True), ballot.text[j], ballot.scores[j]))
        elif i and cost[i][j] == cost[i - 1][j] + 1:
            i -= 1
            places.append(((i, True), "", ballot.mean))
        else:
            j -= 1
            places.append(((i, False), ballot.text[j], ballot.scores[j]))
    return places
