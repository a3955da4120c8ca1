# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests and responses about alerts on telephones and desktops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Le, Len

from streamkit.serve.api_models import RequestBody

_Key = Annotated[str, Len(1, 200)]


@dataclass(slots=True)
class PushView:
    """What a browser needs to subscribe, and what is silenced.

    `public_key` is empty if the server cannot send, and `problem` says why. `browsers` is the number of browsers that
    the sender has subscribed. `silenced` has the time until which nothing is sent by source, "" for all sources.
    `escalate_s` is after how many seconds an alert that no one has reviewed is sent again, null for never.
    """

    public_key: str
    problem: str
    browsers: int
    silenced: dict[str, float]
    escalate_s: float | None
    counts: dict[str, int]


@dataclass
class PushKeys(RequestBody):
    """The keys of a browser's subscription, in base64."""

    p256dh: _Key
    auth: _Key


@dataclass
class NewSubscription(RequestBody):
    """A browser's subscription, as `PushSubscription.toJSON` gives it."""

    endpoint: Annotated[str, Len(1, 2048)]
    keys: PushKeys
    expirationTime: float | None = None  # noqa: N815  # the name of the standard


@dataclass
class EndedSubscription(RequestBody):
    """The address of the subscription to end."""

    endpoint: Annotated[str, Len(1, 2048)]


@dataclass
class Silence(RequestBody):
    """Send no alert for some minutes, about a source or with an empty one about all; 0 minutes end it."""

    minutes: Annotated[float, Ge(0), Le(7 * 24 * 60)]
    source: Annotated[str, Len(0, 400)] = ""


@dataclass
class Escalation(RequestBody):
    """After how many minutes an alert that no one has reviewed is sent once more; null for never."""

    minutes: Annotated[float, Ge(0.1), Le(24 * 60)] | None
