# SPDX-License-Identifier: Apache-2.0
"""The gallery of identities as bytes by key, to be stored, and back."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from streamkit.analytics.identity_gallery import CameraStay, IdentityEntry
from streamkit.analytics.identity_matcher import IdentityMatcher
from streamkit.analytics.per_source_steps import Labels

logger = logging.getLogger(__name__)

_CLOCK = "clock"
_NUMBERS = ("seen_s", "views", "xy_s")


def as_state(matcher: IdentityMatcher, labels: Labels) -> dict[str, bytes | None]:
    """Return what has changed since the last call, by key; None for identities that are gone."""
    gallery = matcher.gallery
    numbers = {entry.number for entry in gallery.identities.values()}
    changes: dict[str, bytes | None] = dict.fromkeys(map(str, gallery.stored - numbers))
    for row in np.flatnonzero(gallery["changed"] & (gallery["label"] >= 0)).tolist():
        gallery["changed"][row] = False
        entry = gallery.identities[row]
        seen_at = gallery.seen_at[row]
        head: dict[str, Any] = asdict(entry) | {name: float(gallery[name][row]) for name in _NUMBERS}
        head["xy"] = gallery["xy"][row].tolist()
        head["silent"] = bool(gallery["silent"][row])
        head["seen_at"] = {
            source: float(at_s) for source, at_s in zip(matcher.cameras, seen_at, strict=False) if np.isfinite(at_s)
        }
        changes[str(entry.number)] = orjson.dumps(head) + b"\n" + gallery.vectors[row].tobytes()
    gallery.stored = numbers
    if np.isfinite(matcher.now_s):  # else this run has seen no frame, and the stored clock stays
        clock = {"now_s": matcher.now_s, "wall_s": time.time(), "last_number": gallery.last_number}
        changes[_CLOCK] = orjson.dumps(clock)
    return changes


def restore(matcher: IdentityMatcher, stored: Mapping[str, bytes], labels: Labels) -> None:
    """Fill an empty gallery. Entries that cannot be read are left out; a warning tells how many."""
    gallery = matcher.gallery
    broken = 0
    for key, value in stored.items():
        try:
            if key == _CLOCK:
                clock = orjson.loads(value)
                gallery.last_number = max(gallery.last_number, int(clock["last_number"]))
                matcher.continue_from(float(clock["now_s"]), float(clock["wall_s"]))
            else:
                _restore_identity(matcher, value, labels)
        except (ValueError, KeyError, TypeError):
            broken += 1
    if broken:
        logger.warning(f"{broken} stored identities cannot be read; they are left out")


def _restore_identity(matcher: IdentityMatcher, value: bytes, labels: Labels) -> None:
    head, _, rest = value.partition(b"\n")
    stored = orjson.loads(head)
    path = [CameraStay(**stay) for stay in stored["path"]]
    entry = IdentityEntry(
        int(stored["number"]), str(stored["label"]), path, stored["last"] and CameraStay(**stored["last"])
    )
    numbers = {name: -np.inf if stored[name] is None else float(stored[name]) for name in _NUMBERS}
    xy = [np.nan if number is None else float(number) for number in stored["xy"]]
    seen_at = {matcher.camera(source): float(at_s) for source, at_s in stored["seen_at"].items()}
    vector = np.frombuffer(rest, np.float32)
    silent = bool(stored["silent"])
    gallery = matcher.gallery
    label = labels.number(entry.label)
    if label < 0:
        return  # the option labels leaves its class out now
    row = gallery.add(entry, label, vector)
    gallery.stored.add(entry.number)
    for name, number in numbers.items():
        gallery[name][row] = number
    gallery["xy"][row] = xy
    gallery["silent"][row] = silent
    gallery["changed"][row] = False
    for camera, at_s in seen_at.items():
        gallery.seen_at[row, camera] = at_s
