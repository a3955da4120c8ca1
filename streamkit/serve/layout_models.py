# SPDX-License-Identifier: Apache-2.0
"""Request and response bodies of saved layouts and tours of the live view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from streamkit.serve.api_models import RequestBody

LayoutName = Annotated[str, Len(1, 80)]


@dataclass
class Layout(RequestBody):
    """A layout: its name, the ids of its cameras in their order, and how many are on the screen at once."""

    name: LayoutName
    sources: Annotated[list[Annotated[str, Len(1, 512)]], Len(1, 500)]
    size: Literal[1, 4, 9, 16, 25]


@dataclass
class TourStop(RequestBody):
    """A layout of a tour by its name, and for how many seconds it is shown."""

    layout: LayoutName
    seconds: Annotated[float, Ge(2), Le(3600)]


@dataclass
class Tour(RequestBody):
    """A tour: its name, and the layouts that follow one another, again and again."""

    name: LayoutName
    stops: Annotated[list[TourStop], Len(1, 50)]


@dataclass
class Layouts(RequestBody):
    """The layouts and tours of a person."""

    layouts: Annotated[list[Layout], Len(0, 50)]
    tours: Annotated[list[Tour], Len(0, 50)]
