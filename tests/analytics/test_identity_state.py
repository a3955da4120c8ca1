"""A gallery that is stored and restored is the same, on the clock of the new run."""

import time

import numpy as np
import pytest
from support.messages import collect

from streamkit.analytics.identity_gallery import CameraStay, IdentityEntry, IdentityGallery, unit
from streamkit.analytics.identity_matcher import IdentityMatcher, MatchOptions, Sighting, _Turn
from streamkit.analytics.identity_state import as_state, restore
from streamkit.analytics.per_source_steps import Labels

OPTIONS = MatchOptions(0.8, 0.0, 2.0, 10.0, {}, 2.0, 60.0, 3600.0, 100)


def matcher():
    return IdentityMatcher(OPTIONS, lambda gain: np.where(gain.max(axis=1) > 0, gain.argmax(axis=1), -1))


def sighting(labels, now_s, looks, source="a"):
    n = len(looks)
    return Sighting(
        [source],
        np.zeros(1, np.int64),
        np.array([now_s]),
        np.zeros(1, bool),
        np.zeros(n, np.int64),
        np.arange(n),
        labels.__getitem__,
        np.full(n, labels.number("person")),
        np.full((n, 2), np.nan),
        np.eye(4, dtype=np.float32)[looks],
    )


def step(identity_matcher, labels, now_s, looks, source="a"):
    """Two frames: tracks wait a little for others that are to be matched."""
    identity_matcher.step(sighting(labels, now_s - 0.1, looks, source))
    return identity_matcher.step(sighting(labels, now_s, looks, source))


def test_only_changes_are_stored_and_the_gallery_is_restored():
    labels = Labels()
    first = matcher()
    step(first, labels, 10.0, [0, 1])
    stored = as_state(first, labels)
    assert sorted(stored) == ["1", "2", "clock"]
    assert sorted(as_state(first, labels)) == ["clock"]
    step(first, labels, 10.5, [0])
    stored |= as_state(first, labels)
    again = matcher()
    names = Labels()
    names.number("car")  # numbers of classes may differ
    restore(again, {key: value for key, value in stored.items() if value is not None}, names)
    assert len(again.gallery) == 2
    done = step(again, names, 0.0, [1, 2, 0])
    assert done.identity.tolist() == [2, 3, 1]
    assert again.gallery["seen_s"][:3].tolist() == [0.0] * 3


def test_times_continue_with_a_new_clock():
    labels = Labels()
    first = matcher()
    step(first, labels, 100.0, [0])
    step(first, labels, 107.0, [1], "b")
    stored = {key: value for key, value in as_state(first, labels).items() if value is not None}
    again = matcher()
    restore(again, stored, labels)
    step(again, labels, 3.0, [2])
    seen_s = dict(zip((1, 2), again.gallery["seen_s"][:2].tolist(), strict=True))
    assert seen_s == {1: pytest.approx(-4.0, abs=0.5), 2: pytest.approx(3.0, abs=0.5)}
    stays = {
        identity.number: [(stay.from_s, stay.to_s) for stay in identity.path]
        for identity in again.gallery.identities.values()
    }
    for number, time_s in ((1, -4.0), (2, 3.0)):
        ((from_s, to_s),) = stays[number]
        assert from_s == pytest.approx(time_s, abs=0.5)
        assert from_s <= to_s < from_s + 0.5

    live = matcher()
    wall_s = time.time()
    step(live, labels, wall_s - 2.0, [0])
    stored = {key: value for key, value in as_state(live, labels).items() if value is not None}
    again = matcher()
    restore(again, stored, labels)
    step(again, labels, wall_s + 30.0, [2])
    assert again.gallery["seen_s"][0] == pytest.approx(wall_s - 2.0)


def test_shifted_times_are_stored_again():
    labels = Labels()
    first = matcher()
    step(first, labels, 100.0, [0])
    stored = as_state(first, labels)
    again = matcher()
    restore(again, stored, labels)
    assert as_state(again, labels) == {}  # no frame yet: the stored clock stays
    step(again, labels, 3.0, [1])
    stored |= as_state(again, labels)
    third = matcher()
    restore(third, stored, labels)
    step(third, labels, 50.0, [2])
    seen_s = third.gallery["seen_s"][:2]
    assert seen_s[1] - seen_s[0] == pytest.approx(0.1, abs=0.5)


def test_removed_identities_are_deleted_and_broken_ones_skipped():
    labels = Labels()
    first = matcher()
    step(first, labels, 0.0, [0])
    as_state(first, labels)
    first.end(0)
    first.gallery.remove(0)
    assert as_state(first, labels)["1"] is None
    logged = collect()
    again = matcher()
    restore(again, {"7": b"rubbish", "8": b'{"number": 8}\nxx'}, labels)
    assert len(again.gallery) == 0
    assert logged == ["2 stored identities cannot be read; they are left out"]


# ----------------------------------------------------------------------------------------------------------- gallery


def added(gallery, number, vector, seen_s=0.0):
    row = gallery.add(
        IdentityEntry(number, "person", [CameraStay("a", seen_s, seen_s)]), 0, np.asarray(vector, np.float32)
    )
    gallery.fit(0, 2)
    gallery.see(np.array([row]), np.array([0]), np.array([seen_s]), np.full((1, 2), np.nan), seen_s)
    return row


def test_the_path_of_an_identity_is_bounded():
    entry = IdentityEntry(1, "person", [CameraStay("ab"[n % 2], n, n + 1) for n in range(150)])
    entry.shorten()
    assert [stay.from_s for stay in entry.path] == [0, *range(51, 150)]


def test_an_identity_is_the_mean_of_its_views():
    gallery = IdentityGallery()
    row = added(gallery, 1, [1, 0, 0])
    gallery.learn(np.array([row]), np.array([[0, 1, 0]], np.float32))
    np.testing.assert_allclose(gallery.vectors[row], [0.5**0.5, 0.5**0.5, 0], atol=1e-6)
    other = added(gallery, 2, [0, 0, 1], 5.0)
    gallery.merge(row, other)
    assert len(gallery) == 1
    np.testing.assert_allclose(gallery.vectors[row], unit(np.array([2**0.5, 2**0.5, 1.0])), atol=0.1)
    assert gallery["seen_s"][row] == 5.0
    assert [stay.from_s for stay in gallery.identities[row].path] == [0.0, 5.0]


def test_a_batch_returns_the_matches_of_all_its_tracks():
    gallery = IdentityGallery()
    added(gallery, 1, [1, 0])
    turn = _Turn(np.array([0]), np.array([0]), np.eye(2, dtype=np.float32)[:1], gallery)
    turn.add(3, np.array([1, 0], np.float32))
    assert turn.similarity[:, 0].tolist() == [1, 0, 0, 1]


def test_free_rows_match_nothing_and_are_reused():
    gallery = IdentityGallery()
    rows = [added(gallery, n, np.eye(4)[n - 1], float(n)) for n in (1, 2, 3)]
    gallery.remove(rows[1])
    assert gallery.similarity(np.eye(4, dtype=np.float32)[1:2])[:, 0].tolist() == [0, 0, 0]
    assert gallery.oldest(2) == [rows[0], rows[2]]
    assert gallery.unseen(10.0, 8.0) == [rows[0]]
    assert added(gallery, 4, np.eye(4)[3]) == rows[1]
