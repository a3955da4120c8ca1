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
    numbers = {one.number for one in gallery.identities.values()}
    found: dict[str, bytes | None] = dict.fromkeys(map(str, gallery.stored - numbers))
    for row in np.flatnonzero(gallery["changed"] & (gallery["label"] >= 0)).tolist():
        gallery["changed"][row] = False
        one = gallery.identities[row]
        seen_at = gallery.seen_at[row]
        head: dict[str, Any] = asdict(one) | {name: float(gallery[name][row]) for name in _NUMBERS}
        head["xy"] = gallery["xy"][row].tolist()
        head["silent"] = bool(gallery["silent"][row])
        head["seen_at"] = {
            source: float(at_s) for source, at_s in zip(matcher.cameras, seen_at, strict=False) if np.isfinite(at_s)
        }
        found[str(one.number)] = orjson.dumps(head) + b"\n" + gallery.vectors[row].tobytes()
    gallery.stored = numbers
    if np.isfinite(matcher.now_s):  # else this run has seen no frame, and the stored clock stays
        clock = {"now_s": matcher.now_s, "wall_s": time.time(), "last_number": gallery.last_number}
        found[_CLOCK] = orjson.dumps(clock)
    return found


def restore(matcher: IdentityMatcher, stored: Mapping[str, bytes], labels: Labels) -> None:
    """Fill an empty gallery. Entries that cannot be read are left out; a warning tells how many."""
    gallery, broken = matcher.gallery, 0
    for key, value in stored.items():
        try:
            if key == _CLOCK:
                clock = orjson.loads(value)
                gallery.last_number = max(gallery.last_number, int(clock["last_number"]))
                matcher.continue_from(float(clock["now_s"]), float(clock["wall_s"]))
            else:
                _restore_one(matcher, value, labels)
        except (ValueError, KeyError, TypeError):
            broken += 1
    if broken:
        logger.warning(f"{broken} stored identities cannot be read; they are left out")


def _restore_one(matcher: IdentityMatcher, value: bytes, labels: Labels) -> None:
    head, _, rest = value.partition(b"\n")
    known = orjson.loads(head)
    path = [CameraStay(**stay) for stay in known["path"]]
    one = IdentityEntry(int(known["number"]), str(known["label"]), path, known["last"] and CameraStay(**known["last"]))
    numbers = {name: -np.inf if known[name] is None else float(known[name]) for name in _NUMBERS}
    xy = [np.nan if number is None else float(number) for number in known["xy"]]
    seen_at = {matcher.camera(source): float(at_s) for source, at_s in known["seen_at"].items()}
    vector, silent = np.frombuffer(rest, np.float32), bool(known["silent"])
    gallery, label = matcher.gallery, labels.number(one.label)
    if label < 0:
        return  # the option labels leaves its class out now
    row = gallery.add(one, label, vector)
    gallery.stored.add(one.number)
    for name, number in numbers.items():
        gallery[name][row] = number
    gallery["xy"][row], gallery["silent"][row], gallery["changed"][row] = xy, silent, False
    for camera, at_s in seen_at.items():
        gallery.seen_at[row, camera] = at_s
