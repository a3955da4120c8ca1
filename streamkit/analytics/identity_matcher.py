# SPDX-License-Identifier: Apache-2.0
"""Gives the tracks of several cameras one identity per object, by appearance, time, and place on the ground.

A track is matched when it is known for long enough: the tracks of one camera are assigned to the identities of the
gallery in one assignment, and a track that fits none founds a new identity. While a track is young, it is matched
again, because its vector improves: it may move to an identity that fits better, and an identity that it founded is
merged into the one that it fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamkit.analytics.ground_paths import GROUND_COLUMNS, extend_paths, path_distance
from streamkit.analytics.identity_gallery import CameraStay, IdentityEntry, IdentityGallery, unit
from streamkit.analytics.track_store import TrackStore

_SMOOTHING_S = 2.0  # after this time, a vector of a track weighs 1/e
_VECTOR_S = 0.2  # how often a track's vector is updated
_LEARN_S = 1.0  # how often an identity gets a view from each of its tracks
_AGAIN_S = 0.5  # after this time a track is matched again; how often it is compared with the others of its identity
_CHECKS = 4  # how often a track is matched again; each time after twice the time
_SURE_S = 1.0  # a new identity is announced after this time
_AT_ONCE = 16  # tracks that are matched in one step; others wait for the next
_LOOSE = 0.25  # objects at one place may be less similar by this
_PARTED = 2.0  # times `distance`: objects of one identity that are further apart are two
_PARTED_SAMPLES = 5
_FAR = 4.0  # times `distance`: last positions that are further apart need not be compared
_TOGETHER_S = 0.08  # how long a track waits for others that are due
_TINY = 1e-6
_STAY = 0.05  # a track stays with its identity unless another one is more similar by this
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """How tracks and identities are matched.

    Attributes:
        min_similarity: minimum cosine of two vectors of one object.
        confirm_s: how long a track is seen before it is matched.
        distance_m: how far apart two cameras may see one object on the ground.
        max_speed_mps: how fast an object moves over the ground at most.
        travel_s: the shortest time from camera to camera, by the two sources, in both orders.
        track_ttl_s: how long an unseen track is remembered.
        left_after_s: an identity that no camera sees for longer has left.
        forget_s: an identity that no camera sees for longer is forgotten.
        max_identities: the largest number of identities; beyond it, the oldest are forgotten.
    """

    min_similarity: float
    confirm_s: float
    distance_m: float
    max_speed_mps: float
    travel_s: Mapping[tuple[str, str], float]
    track_ttl_s: float
    left_after_s: float
    forget_s: float
    max_identities: int


@dataclass(slots=True)
class Sighting:
    """The tracked objects of one frame of each of several sources, n in total.

    Attributes:
        sources: (f,) name of each frame's source.
        slot: (f,) int64, a small number of each source.
        now_s: (f,) float64, the common time.
        back: (f,) bool, the tracks of the source have ended before this frame.
        frame: (n,) int64, the frame of each object, ascending.
        track: (n,) int64.
        label: returns the name of a class by its number.
        label_id: (n,) int64, numbers of the classes.
        xy: (n, 2) float64, meters on the ground; NaN without a plane.
        vector: (n, d) float32 of length 1; NaN or 0 where there is none.
    """

    sources: list[str]
    slot: np.ndarray
    now_s: np.ndarray
    back: np.ndarray
    frame: np.ndarray
    track: np.ndarray
    label: Callable[[int], str]
    label_id: np.ndarray
    xy: np.ndarray
    vector: np.ndarray


@dataclass(slots=True)
class IdentityEvent:
    """An event of an identity: at a frame of the sighting, or, if that is None, at the next frame of `source`."""

    kind: str
    source: str
    frame: int | None
    track: int | None
    data: dict[str, Any]


@dataclass(slots=True)
class Matched:
    """The result of a step: (n,) int64 numbers of identities, -1 for none; the events; what is counted, by phrase."""

    identity: np.ndarray
    events: list[IdentityEvent] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


class _Turn:
    """Tracks that are matched in one step.

    Attributes:
        rows: (k,) rows of the tracks.
        frame: (k,) the frame of each.
        vectors: (k, d) float32 of length 1; 0 where unknown.
        similarity: (m, k) float32 with each row of the gallery; with room for those that these tracks found.
    """

    def __init__(self, rows: np.ndarray, frame: np.ndarray, vectors: np.ndarray, gallery: IdentityGallery) -> None:
        self.rows = rows
        self.frame = frame
        self.vectors = vectors
        gallery.fit(vectors.shape[1], 0)
        self.similarity = np.concatenate([gallery.similarity(vectors), np.zeros((len(rows), len(rows)), np.float32)])

    def add(self, identity: int, vector: np.ndarray) -> None:
        """Note an identity that a track has founded, by its row in the gallery; its vector is (d,)."""
        missing = identity + 1 - len(self.similarity)
        if missing > 0:  # other tracks of the camera have founded identities too
            more = np.zeros((missing, len(self.rows)), np.float32)
            self.similarity = np.concatenate([self.similarity, more])
        self.similarity[identity] = self.vectors @ vector


class IdentityMatcher:
    """The tracks of some cameras and the gallery of their identities.

    Args:
        options: how they are matched.
        assign: returns the column of each row of (n, m) gains, -1 for none, so that the total is greatest.
    """

    def __init__(self, options: MatchOptions, assign: Callable[[np.ndarray], np.ndarray]) -> None:
        self.gallery = IdentityGallery()
        self.now_s = -np.inf
        self._options = options
        self._assign = assign
        self._cameras: dict[str, int] = {}
        never = np.float64(-np.inf)
        self._tracks = TrackStore(
            identity=np.int64(-1),
            founder=np.bool_(False),
            camera=np.int64(-1),
            label=np.int64(-1),
            first_s=np.float64(0),
            joined_s=np.float64(0),
            checked_s=never,
            checks=np.int64(0),
            parted_s=never,
            learned_s=never,
            vector=np.zeros(0, np.float32),
            vector_s=never,
            **GROUND_COLUMNS,
        )
        self._swept_s = -np.inf
        self._expected_s: float | None = None  # of a restored gallery: the time that its clock would show now
        self._done = Matched(np.zeros(0, np.int64))

    def step(self, seen: Sighting) -> Matched:
        """Match the objects of one frame of each of several sources."""
        self._done = Matched(np.full(len(seen.track), -1, np.int64))
        if self._expected_s is not None:
            self._shift(float(seen.now_s.min()) - self._expected_s)
        rows, now_s = self._observe(seen)
        self._part(seen, rows)
        self._match(seen, rows, now_s)
        self._learn(rows, now_s)
        self._announce(seen, rows, now_s)
        identity = self._tracks["identity"][rows]
        self._done.identity[identity >= 0] = self.gallery["number"][identity[identity >= 0]]
        self._sweep()
        return self._done

    def end(self, slot: int) -> None:
        """End the tracks of a source; the identities stay."""
        self._tracks.end(slot)

    def camera(self, source: str) -> int:
        """The number of a source's column in `IdentityGallery.seen_at`."""
        column = self._cameras.setdefault(source, len(self._cameras))
        self.gallery.fit(0, len(self._cameras))
        return column

    def continue_from(self, now_s: float, wall_s: float) -> None:
        """Tell that the gallery is of an earlier run, whose clock showed `now_s` at `wall_s` seconds since 1970."""
        self._expected_s = now_s + time.time() - wall_s

    def _shift(self, by_s: float) -> None:
        """Shift the times of a restored gallery to this run's clock, unless both are the wall clock."""
        expected_s = self._expected_s
        self._expected_s = None
        if expected_s is not None and abs(expected_s - time.time()) < _DAY_S and abs(by_s) < _DAY_S:
            return
        gallery = self.gallery
        gallery["changed"][:] = True  # free rows are not stored
        gallery["seen_s"][:] += by_s
        gallery["xy_s"][:] += by_s
        gallery.seen_at += by_s
        for entry in gallery.identities.values():
            for stay in entry.path if entry.last is None else (*entry.path, entry.last):
                stay.from_s = stay.from_s + by_s
                stay.to_s = stay.to_s + by_s

    @property
    def cameras(self) -> list[str]:
        """The sources by their number."""
        return list(self._cameras)

    # ------------------------------------------------------------------------------------------------------- tracks

    def _observe(self, seen: Sighting) -> tuple[np.ndarray, np.ndarray]:
        """Update the tracks; return the row and the time of each object."""
        tracks = self._tracks
        now_s = seen.now_s[seen.frame]
        tracks.drop(tracks.unseen(seen.slot, seen.now_s, seen.back, self._options.track_ttl_s))
        rows, fresh = tracks.find(seen.slot[seen.frame], seen.track)
        self.now_s = max(self.now_s, float(seen.now_s.max(initial=-np.inf)))
        tracks["seen_s"][rows] = now_s
        tracks["label"][rows] = seen.label_id
        if fresh.any():
            cameras = np.array([self.camera(source) for source in seen.sources], np.int64)
            new = rows[fresh]
            tracks["first_s"][new] = now_s[fresh]
            tracks["camera"][new] = cameras[seen.frame[fresh]]
        extend_paths(tracks, rows, seen.xy, now_s)
        due = (now_s - tracks["vector_s"][rows] >= _VECTOR_S) & (seen.vector.shape[1] > 0)
        due[due] = np.abs(seen.vector[due]).sum(axis=1) > 0  # false for NaN as well
        if due.any():
            self._add_vectors(rows[due], seen.vector[due], now_s[due])
        return rows, now_s

    def _add_vectors(self, rows: np.ndarray, vectors: np.ndarray, now_s: np.ndarray) -> None:
        tracks = self._tracks
        length = vectors.shape[1]
        if tracks["vector"].shape[1] < length:
            wider = np.zeros((tracks.rows, length), np.float32)
            wider[:, : tracks["vector"].shape[1]] = tracks["vector"]
            tracks.replace("vector", wider)
        keep = np.exp(-(now_s - tracks["vector_s"][rows]) / _SMOOTHING_S)
        sums = tracks["vector"][rows] * keep[:, None].astype(np.float32)
        sums[:, :length] += vectors
        tracks["vector"][rows] = sums
        tracks["vector_s"][rows] = now_s

    def _part(self, seen: Sighting, rows: np.ndarray) -> None:
        """Take the identity from a track that cannot have it: another one of its camera has it, or is far away."""
        tracks = self._tracks
        identity = tracks["identity"][rows]
        key = np.where(identity >= 0, identity * len(seen.sources) + seen.frame, -1 - np.arange(len(rows)))
        order = np.lexsort((tracks["joined_s"][rows], key))  # the first that joined keeps it
        again = np.zeros(len(rows), bool)
        again[order[1:]] = key[order[1:]] == key[order[:-1]]
        due = (identity >= 0) & (tracks["xy_s"][rows] == tracks["seen_s"][rows])
        due &= ~tracks["founder"][rows] & (tracks["seen_s"][rows] - tracks["parted_s"][rows] >= _AGAIN_S)
        for at in np.flatnonzero(due).tolist():
            row = rows[at]
            others = np.flatnonzero(tracks["alive"] & (tracks["identity"] == identity[at]))
            others = others[(others != row) & (tracks["joined_s"][others] <= tracks["joined_s"][row])]
            apart, count = path_distance(tracks, np.full(len(others), row), others)
            far = (count >= _PARTED_SAMPLES) & (apart > _PARTED * self._options.distance_m)
            again[at] |= bool(far.any())
            tracks["parted_s"][row] = tracks["seen_s"][row]
        tracks["identity"][rows[again]] = -1
        if again.any():
            self._count("parted", int(again.sum()))

    # ------------------------------------------------------------------------------------------------------ matching

    def _match(self, seen: Sighting, rows: np.ndarray, now_s: np.ndarray) -> None:
        """Match the tracks whose turn it is, camera by camera."""
        tracks = self._tracks
        options = self._options
        undecided = tracks["identity"][rows] < 0
        has_evidence = (tracks["vector_s"][rows] > -np.inf) | (tracks["xy_s"][rows] == now_s)
        young = ~undecided & (tracks["checks"][rows] <= _CHECKS)
        again_s = tracks["checked_s"][rows] + _AGAIN_S * 2.0 ** (tracks["checks"][rows] - 1)
        waits_s = now_s - np.where(undecided, tracks["first_s"][rows] + options.confirm_s, again_s)
        chosen = np.flatnonzero((waits_s >= 0) & ((undecided & has_evidence) | young))
        if len(chosen) < _AT_ONCE and not (waits_s[chosen] >= _TOGETHER_S).any():
            return  # several are compared with the whole gallery at little more than the cost of one
        chosen = chosen[np.argsort(young[chosen], kind="stable")][:_AT_ONCE]  # those without an identity come first
        turn_rows = rows[chosen]
        tracks["checked_s"][turn_rows] = now_s[chosen]
        tracks["checks"][turn_rows] += 1
        turn = _Turn(turn_rows, seen.frame[chosen], unit(tracks["vector"][turn_rows]), self.gallery)
        for frame in sorted(set(turn.frame.tolist()), key=lambda number: seen.sources[number]):
            self._match_camera(seen, turn, np.flatnonzero(turn.frame == frame), float(seen.now_s[frame]))

    def _match_camera(self, seen: Sighting, turn: _Turn, at: np.ndarray, now_s: float) -> None:
        """Assign the tracks of one camera to identities.

        Young tracks of the camera that have an identity take part, so that one can take the identity of another.
        """
        tracks = self._tracks
        vectors = turn.vectors[at]
        similarity = turn.similarity[:, at]
        fits = np.flatnonzero((similarity >= self._options.min_similarity - _LOOSE).any(axis=1))
        rows = turn.rows[at]
        others = self._companions(turn.rows[at])
        identities = tracks["identity"][np.concatenate([rows, others])]
        joined = (identities >= 0) & ~tracks["founder"][np.concatenate([rows, others])]
        candidates = np.unique(np.concatenate([fits, self._on_ground(rows), identities[joined]]))
        if len(others):
            more = unit(tracks["vector"][others])
            vectors = np.concatenate([vectors, more])
            rows = np.concatenate([rows, others])
        alike = self.gallery.vectors[candidates, : vectors.shape[1]] @ vectors.T
        alike = alike.T.copy()
        for place in np.flatnonzero(joined).tolist():
            alike[place, np.searchsorted(candidates, identities[place])] = self._similarity_to_others(
                int(rows[place]), vectors[place]
            )
        taken = self._assign(self._gains(rows, candidates, alike, now_s)) if len(candidates) else np.full(len(rows), -1)
        assigned = np.where(taken >= 0, candidates[taken], -1) if len(candidates) else taken
        # nothing fits better
        keeps = joined & ((assigned == identities) | ((assigned < 0) & ~np.isin(identities, assigned)))
        for row in rows[joined & ~keeps].tolist():
            self._leave_track(row)
        for place in np.flatnonzero((assigned >= 0) & ~keeps).tolist():
            self._join(int(rows[place]), int(assigned[place]), now_s)
        for place in np.flatnonzero((assigned < 0) & (tracks["identity"][rows] < 0)).tolist():
            new_row = self._new_identity(seen, int(rows[place]), vectors[place], now_s)  # may forget an identity
            turn.add(new_row, vectors[place])

    def _companions(self, rows: np.ndarray) -> np.ndarray:
        """The other young tracks of the camera of these that have joined an identity."""
        tracks = self._tracks
        row = rows[0]
        young = tracks["alive"] & (tracks["camera"] == tracks["camera"][row]) & ~tracks["founder"]
        young &= (tracks["identity"] >= 0) & (tracks["checks"] <= _CHECKS)
        young &= tracks["seen_s"] == tracks["seen_s"][row]
        return np.setdiff1d(np.flatnonzero(young), rows)

    def _similarity_to_others(self, row: int, vector: np.ndarray) -> float:
        """How similar a track is to the others of its identity, with a bonus for those that are together."""
        tracks = self._tracks
        others = np.flatnonzero(tracks["alive"] & (tracks["identity"] == tracks["identity"][row]))
        others = others[(others != row) & (tracks["vector_s"][others] > -np.inf)]
        return _STAY + (float((unit(tracks["vector"][others]) @ vector).max()) if len(others) else 1.0)

    def _leave_track(self, row: int) -> None:
        """Take the identity from a track, and its stay from the identity."""
        tracks = self._tracks
        gallery = self.gallery
        entry = gallery.identities[int(tracks["identity"][row])]
        source = self.cameras[int(tracks["camera"][row])]
        last_stay = next((stay for stay in reversed(entry.path) if stay.source == source), None)
        entry.path = [stay for stay in entry.path if stay is not last_stay]
        tracks["identity"][row] = -1
        self._count("parted")

    def _on_ground(self, rows: np.ndarray) -> np.ndarray:
        """The identities of other cameras' tracks with a place on the ground, if these tracks have one."""
        tracks = self._tracks
        if np.isnan(tracks["xy"][rows, 0]).all():
            return np.zeros(0, np.int64)
        there = tracks["alive"] & (tracks["identity"] >= 0) & ~np.isnan(tracks["xy"][:, 0])
        return np.asarray(tracks["identity"][there & (tracks["camera"] != tracks["camera"][rows[0]])])

    def _gains(self, rows: np.ndarray, candidates: np.ndarray, similarity: np.ndarray, now_s: float) -> np.ndarray:
        """Return (k, c) gains of tracks of one camera with identities; 0 for pairs that are not possible.

        Args:
            rows: (k,) rows of the tracks.
            candidates: (c,) rows of the gallery, ascending.
            similarity: (k, c) cosines; 0 where a vector is unknown.
            now_s: the time of the frame.
        """
        tracks = self._tracks
        gallery = self.gallery
        options = self._options
        possible = gallery["label"][candidates] == tracks["label"][rows][:, None]
        possible &= ~tracks["founder"][rows][:, None] | (candidates != tracks["identity"][rows][:, None])
        possible &= self._in_time(int(tracks["camera"][rows[0]]), candidates, now_s)
        self._exclude_neighbors(rows, candidates, possible)
        apart = self._apart(rows, candidates)
        here = apart <= options.distance_m
        reach = options.distance_m + options.max_speed_mps * np.abs(now_s - gallery["xy_s"][candidates])
        far = np.hypot(*np.moveaxis(tracks["xy"][rows][:, None] - gallery["xy"][candidates], 2, 0)) > reach
        possible &= ~(far & np.isnan(apart)) & ~(apart > options.distance_m)
        unknown = ~(tracks["vector"][rows].any(axis=1)[:, None] & gallery.vectors[candidates].any(axis=1))
        alike = np.where(unknown, options.min_similarity, similarity)
        by_place = here & (alike >= options.min_similarity - _LOOSE)
        by_look = ~here & ~unknown & (similarity >= options.min_similarity)
        gain = np.where(by_place, 2 - apart / options.distance_m + alike, similarity - options.min_similarity + _TINY)
        return np.where(possible & (by_place | by_look), gain, 0.0).astype(np.float64)

    def _in_time(self, camera: int, candidates: np.ndarray, now_s: float) -> np.ndarray:
        """Return (c,) bool: whether each identity can be at a camera now, by the travel times."""
        possible = np.ones(len(candidates), bool)
        here = self.cameras[camera]
        for source, other in self._cameras.items():
            shortest_s = self._options.travel_s.get((source, here))
            if shortest_s is not None:
                possible &= now_s - self.gallery.seen_at[candidates, other] >= shortest_s
        return possible

    def _exclude_neighbors(self, rows: np.ndarray, candidates: np.ndarray, possible: np.ndarray) -> None:
        """Exclude identities of other tracks of the same camera that were seen since a track began."""
        tracks = self._tracks
        others = tracks["alive"] & (tracks["camera"] == tracks["camera"][rows[0]]) & (tracks["identity"] >= 0)
        others[rows[~tracks["founder"][rows]]] = False  # these are assigned together
        others = np.flatnonzero(others)
        column = np.searchsorted(candidates, tracks["identity"][others])
        column = np.minimum(column, len(candidates) - 1)
        there = candidates[column] == tracks["identity"][others]
        for other, at in zip(others[there].tolist(), column[there].tolist(), strict=True):
            possible[:, at] &= (tracks["first_s"][rows] > tracks["seen_s"][other]) | (rows == other)

    def _apart(self, rows: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Return (k, c) float64: how far other cameras' tracks of each identity are away, in meters; NaN if unknown."""
        tracks = self._tracks
        total = np.zeros((len(rows), len(candidates)))
        count = np.zeros((len(rows), len(candidates)))
        there = tracks["alive"] & (tracks["identity"] >= 0) & ~np.isnan(tracks["xy"][:, 0])
        others = np.flatnonzero(there & (tracks["camera"] != tracks["camera"][rows[0]]))
        column = np.minimum(np.searchsorted(candidates, tracks["identity"][others]), len(candidates) - 1)
        is_candidate = candidates[column] == tracks["identity"][others]
        others = others[is_candidate]
        column = column[is_candidate]
        if len(others) and not np.isnan(tracks["xy"][rows, 0]).all():
            track = np.repeat(np.arange(len(rows)), len(others))
            seen_elsewhere = np.tile(np.arange(len(others)), len(rows))
            last = np.hypot(*(tracks["xy"][rows[track]] - tracks["xy"][others[seen_elsewhere]]).T)
            moved = self._options.max_speed_mps * np.abs(
                tracks["xy_s"][rows[track]] - tracks["xy_s"][others[seen_elsewhere]]
            )
            near = last <= _FAR * self._options.distance_m + moved
            apart = np.full(len(track), np.inf)  # those that cannot be near are not compared
            apart[near], _ = path_distance(tracks, rows[track[near]], others[seen_elsewhere[near]])
            comparable = ~np.isnan(apart)
            np.add.at(total, (track[comparable], column[seen_elsewhere[comparable]]), apart[comparable])
            np.add.at(count, (track[comparable], column[seen_elsewhere[comparable]]), 1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    # ---------------------------------------------------------------------------------------------------- identities

    def _new_identity(self, seen: Sighting, row: int, vector: np.ndarray, now_s: float) -> int:
        """Make a new identity of a track; return its row in the gallery."""
        gallery = self.gallery
        tracks = self._tracks
        while len(gallery) >= self._options.max_identities and self._forget_oldest():
            self._count("forgotten, limit")
        label = int(tracks["label"][row])
        new_row = gallery.add(IdentityEntry(gallery.last_number + 1, seen.label(label)), label, vector)
        gallery.fit(len(vector), len(self._cameras))
        tracks["founder"][row] = True
        self._enter(row, new_row, now_s)
        self._count("new")
        return new_row

    def _join(self, row: int, identity: int, now_s: float) -> None:
        """Give a track an identity; merge the one that it founded, if any."""
        tracks = self._tracks
        gallery = self.gallery
        founded = int(tracks["identity"][row])
        if founded >= 0:
            founded_number = gallery.identities[founded].number
            joined_number = gallery.identities[identity].number
            remaining, merged = (founded, identity) if founded_number < joined_number else (identity, founded)
            gallery.merge(remaining, merged)
            joined = tracks["alive"] & ((tracks["identity"] == merged) | (tracks["identity"] == remaining))
            tracks["identity"][joined] = remaining
            tracks["founder"][joined] = False
            self._count("merged")
            return
        tracks["founder"][tracks["alive"] & (tracks["identity"] == identity)] = False
        self._count("matched")
        self._enter(row, identity, now_s)

    def _enter(self, row: int, identity: int, now_s: float) -> None:
        """Note that a track has an identity from now on; a new stay begins unless it was here last."""
        tracks = self._tracks
        gallery = self.gallery
        tracks["identity"][row] = identity
        tracks["joined_s"][row] = now_s
        entry = gallery.identities[identity]
        camera = int(tracks["camera"][row])
        source = self.cameras[camera]
        self._close(identity)
        last = next((stay for stay in reversed(entry.path) if stay.source == source), None)
        if last is None or (entry.path[-1] is not last and now_s - last.to_s > self._options.track_ttl_s):
            entry.path.append(CameraStay(source, float(tracks["first_s"][row]), now_s))
            entry.shorten()
            gallery["silent"][identity] = True

    def _close(self, identity: int) -> None:
        """Set the end of the last stay at each camera to when that camera last saw the identity."""
        closed: set[str] = set()
        for stay in reversed(self.gallery.identities[identity].path):
            if stay.source not in closed:
                closed.add(stay.source)
                seen_s = float(self.gallery.seen_at[identity, self.camera(stay.source)])
                stay.to_s = max(stay.to_s, seen_s)

    def _learn(self, rows: np.ndarray, now_s: np.ndarray) -> None:
        """Note where the identities are, and what they look like."""
        tracks = self._tracks
        gallery = self.gallery
        has = tracks["identity"][rows] >= 0
        rows = rows[has]
        now_s = now_s[has]
        identity = tracks["identity"][rows]
        xy = np.where((tracks["xy_s"][rows] == now_s)[:, None], tracks["xy"][rows], np.nan)
        gallery.see(identity, tracks["camera"][rows], now_s, xy, self.now_s)
        due = (now_s - tracks["learned_s"][rows] >= _LEARN_S) & (tracks["vector_s"][rows] > -np.inf)
        _, first = np.unique(identity[due], return_index=True)
        learned = rows[due][first]
        if len(learned):
            gallery.learn(identity[due][first], unit(tracks["vector"][learned]))
            tracks["learned_s"][learned] = now_s[due][first]

    # -------------------------------------------------------------------------------------------------------- events

    def _announce(self, seen: Sighting, rows: np.ndarray, now_s: np.ndarray) -> None:
        """Emit `seen` for identities that came to a camera; new ones once they are sure."""
        tracks = self._tracks
        gallery = self.gallery
        identity = tracks["identity"][rows]
        due = (identity >= 0) & (now_s - tracks["joined_s"][rows] >= _SURE_S)
        due[due] = gallery["silent"][identity[due]]
        for at in np.flatnonzero(due).tolist():
            row = int(identity[at])
            source = seen.sources[int(seen.frame[at])]
            path = gallery.identities[row].path
            for place, stay in enumerate(path):
                if stay.source == source and not stay.announced:
                    stay.announced = True
                    data = self._arrival(gallery.identities[row], place)
                    event = IdentityEvent("seen", source, int(seen.frame[at]), int(seen.track[at]), data)
                    self._done.events.append(event)
            gallery["silent"][row] = not all(stay.announced for stay in path)

    @staticmethod
    def _arrival(entry: IdentityEntry, place: int) -> dict[str, Any]:
        """The data of `seen`: who comes, and from where."""
        here = entry.path[place]
        data = dict[str, Any](identity=entry.number, label=entry.label)
        before = next((stay for stay in reversed(entry.path[:place]) if stay.source != here.source), entry.last)
        if before is None:
            return {**data, "new": True}
        return {**data, "before": before.source, "away_s": round(max(0.0, here.from_s - before.to_s), 3)}

    def _sweep(self) -> None:
        """Once a second, let identities leave and forget those that are too old."""
        if self.now_s - self._swept_s < 1.0:
            return
        self._swept_s = self.now_s
        for row in self.gallery.unseen(self.now_s, self._options.left_after_s):
            self._leave(row)
        for row in self.gallery.unseen(self.now_s, self._options.forget_s):
            self._forget(row)
            self._count("forgotten, unseen")

    def _leave(self, row: int) -> None:
        entry = self.gallery.identities[row]
        self._close(row)
        stays = [stay for stay in entry.path if stay.announced]  # others were too short
        if stays:
            last = max(stays, key=lambda stay: stay.to_s)
            path = [
                {"source": stay.source, "from_s": round(stay.from_s, 3), "to_s": round(stay.to_s, 3)} for stay in stays
            ]
            stayed_s = round(last.to_s - stays[0].from_s, 3)
            data = {"identity": entry.number, "label": entry.label, "path": path, "stayed_s": stayed_s}
            self._done.events.append(IdentityEvent("left", last.source, None, None, data))
            entry.last = last
        self.gallery["changed"][row] |= bool(entry.path)
        entry.path = []

    def _forget(self, row: int) -> None:
        """Forget an identity; tracks of a camera that has stopped may still have it."""
        self._leave(row)
        self.gallery.remove(row)
        tracks = self._tracks
        tracks["identity"][tracks["identity"] == row] = -1

    def _forget_oldest(self) -> bool:
        """Forget the identity that was not seen for longest, unless a camera sees it."""
        for row in self.gallery.oldest(1):
            if self.now_s - self.gallery["seen_s"][row] > self._options.track_ttl_s:
                self._forget(row)
                return True
        return False

    def _count(self, what: str, n: int = 1) -> None:
        self._done.counts[what] = self._done.counts.get(what, 0) + n
