# SPDX-License-Identifier: Apache-2.0
"""Alerts on telephones and desktops: subscribe a browser, silence, escalate."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from streamkit.core.errors import MissingPackage
from streamkit.serve.audit import note
from streamkit.serve.engine import ServeEngine
from streamkit.serve.push import PushCenter
from streamkit.serve.push_models import EndedSubscription, Escalation, NewSubscription, PushView, Silence
from streamkit.serve.routes.common import LOCKED_ERRORS, OPERATOR, VIEWER, errors, reply
from streamkit.serve.store.push_table import Subscription


def add_push(api: APIRouter, engine: ServeEngine, push: PushCenter) -> None:
    """Add the routes of alerts on telephones and desktops."""
    own: dict[str, Any] = {"tags": ["push"], "dependencies": VIEWER, "response_model": PushView}
    shared: dict[str, Any] = {"tags": ["push"], "dependencies": OPERATOR, "response_model": PushView}

    def view(request: Request) -> Response:
        problem = ""
        public_key = ""
        try:
            public_key = push.public_key()
        except MissingPackage as error:
            problem = str(error)
        quiet = push.quiet()
        browsers = push.subscribed(request.state.key)
        counts = {} if engine.rights.limited else dict(push.counts.values)
        silenced = {id_: end_s for id_, end_s in quiet.until_s.items() if not id_ or engine.rights.sees(id_)}
        return reply(PushView(public_key, problem, browsers, silenced, quiet.escalate_s, counts))

    @api.get("/push", responses=errors(*LOCKED_ERRORS, 503), **own)
    def about(request: Request) -> Response:
        """The key that a browser subscribes with, and what is silenced."""
        return view(request)

    @api.post("/push/subscriptions", responses=errors(*LOCKED_ERRORS, 409, 422, 503), **own)
    def subscribe(subscription: NewSubscription, request: Request) -> Response:
        """Send alerts to this browser, also while the page is closed."""
        keys = subscription.keys
        state = request.state
        push.subscribe(Subscription(subscription.endpoint, keys.p256dh, keys.auth, state.name, state.key))
        return view(request)

    @api.post("/push/unsubscribe", responses=errors(*LOCKED_ERRORS, 422, 503), **own)
    def unsubscribe(subscription: EndedSubscription, request: Request) -> Response:
        """Send no more alerts to a browser."""
        push.unsubscribe(subscription.endpoint)
        return view(request)

    @api.post("/push/silence", responses=errors(*LOCKED_ERRORS, 404, 422, 503), **shared)
    def silence(wanted: Silence, request: Request) -> Response:
        """Send nothing about a source, or about all, for some minutes."""
        if wanted.source:
            engine.state(wanted.source)
        else:
            engine.rights.check_unlimited("silence about all")
        note(request, wanted.source or "all")
        push.silence(wanted.source, time.time() + 60 * wanted.minutes if wanted.minutes else 0.0)
        return view(request)

    @api.post("/push/escalation", responses=errors(*LOCKED_ERRORS, 422, 503), **shared)
    def escalation(wanted: Escalation, request: Request) -> Response:
        """Send an alert once more if no one has reviewed it for some minutes."""
        note(request, "escalation")
        engine.rights.check_unlimited("escalation")
        push.escalate_after(None if wanted.minutes is None else 60 * wanted.minutes)
        return view(request)
