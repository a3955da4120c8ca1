# SPDX-License-Identifier: Apache-2.0
"""The layouts and tours of the live view that people have saved, by name of the person, in one file."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import orjson

from streamkit.core.errors import OutputError, describe
from streamkit.io.private_file import write_private
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.layout_models import Layouts

logger = logging.getLogger(__name__)

MAX_PEOPLE = 1000


class LayoutStore:
    """Reads the file once, and replaces it with each change. One thread at a time may save.

    Args:
        path: the file; created with the first change.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._saved = self._read()

    def of(self, person: str) -> Layouts:
        """What a person has saved; empty at first."""
        return self._saved.get(person, Layouts([], []))

    def save(self, person: str, layouts: Layouts) -> None:
        """Replace what a person has saved.

        Raises:
            RequestRejected: a name is used twice, or a tour names a layout that is not there.
            OutputError: the file cannot be written; all is as before.
        """
        _check(layouts)
        saved = {**self._saved, person: layouts}
        if not layouts.layouts and not layouts.tours:
            saved.pop(person)
        if len(saved) > MAX_PEOPLE:
            raise RequestRejected(409, f"{MAX_PEOPLE} people have saved layouts, the maximum")
        try:
            write_private(self._path, orjson.dumps(saved).decode())
        except OSError as error:
            raise OutputError(f"{self._path} cannot be written: {error.strerror or error}") from None
        self._saved = saved

    def _read(self) -> dict[str, Layouts]:
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(dict[str, Layouts]).validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            unreadable = self._path.with_suffix(".unreadable")
            with contextlib.suppress(OSError):
                self._path.replace(unreadable)
            logger.warning("the saved layouts cannot be read and are in %s now: %s", unreadable, describe(error))
            return {}


def _check(layouts: Layouts) -> None:
    names = [layout.name for layout in layouts.layouts]
    for kind, used in (("layout", names), ("tour", [tour.name for tour in layouts.tours])):
        if twice := [name for name in used if used.count(name) > 1]:
            raise RequestRejected(422, f"there are two of the {kind} {twice[0]!r}; give each its own name")
    for tour in layouts.tours:
        if missing := [stop.layout for stop in tour.stops if stop.layout not in names]:
            raise RequestRejected(422, f"the tour {tour.name!r} shows {missing[0]!r}, which is no layout")
