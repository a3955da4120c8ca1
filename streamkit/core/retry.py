"""What `reconnect:` under a source may say, as values; `runtime/ingest/reconnect.py` does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.core.units import Count, Seconds

__all__ = ["Reconnect", "Retry"]


class Reconnect(TypedDict, total=False):
    """How a source comes back: the longest wait between two tries, and after how many or how long to give up."""

    max_wait: Seconds
    attempts: Count
    give_up: Seconds


_shape: Any = Reconnect
_shape.__pydantic_config__ = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Retry:
    """How a source is to be opened again.

    Attributes:
        max_wait_s: waits between two tries grow up to this, in seconds.
        attempts: give up after so many tries in a row; None never does.
        give_up_s: give up after so long without a picture, in seconds; None never does.
        frozen_s: reconnect when the frame has not changed for this long, in seconds; None never does.
        first: whether a source that has never come is tried again; otherwise one that has shown live pictures only.
        files: whether what is no live source is opened again as well.
    """

    max_wait_s: float = 3.0
    attempts: int | None = None
    give_up_s: float | None = None
    frozen_s: float | None = None
    first: bool = True
    files: bool = False
