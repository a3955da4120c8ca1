# SPDX-License-Identifier: Apache-2.0
"""The option `reconnect` of a source as values; `runtime/ingest/reconnect.py` applies them."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from streamkit.core.units import Count, Seconds

__all__ = ["Reconnect", "Retry"]


class Reconnect(TypedDict, total=False):
    """The longest wait between two attempts, and the number of attempts or the time after which to give up."""

    max_backoff: Seconds
    attempts: Count
    give_up: Seconds


@dataclass(frozen=True, slots=True)
class Retry:
    """How the runner reopens a source.

    Attributes:
        max_wait_s: waits between two attempts grow to this limit, in seconds.
        attempts: give up after this many failed attempts in a row; None: never.
        give_up_s: give up after this time without a frame, in seconds; None: never.
        frozen_s: reconnect when the frame has not changed for this long, in seconds; None: never.
        first: whether to retry a source that has never delivered a frame; otherwise only one that was live.
        files: whether to reopen sources that are not live.
    """

    max_wait_s: float = 3.0
    attempts: int | None = None
    give_up_s: float | None = None
    frozen_s: float | None = None
    first: bool = True
    files: bool = False
