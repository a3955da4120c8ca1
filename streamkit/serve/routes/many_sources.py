# SPDX-License-Identifier: Apache-2.0
"""Many sources at once: what has changed of them, and one action for several."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from streamkit.serve.api_models import RequestRejected, SourceView
from streamkit.serve.audit import note
from streamkit.serve.engine import ServeEngine
from streamkit.serve.routes.common import LOCKED_ERRORS, OPERATOR, errors, reply
from streamkit.serve.source_changes import SourceChanges
from streamkit.serve.source_models import ActionResult, ChangedSources, SourceAction, SourceProblem
from streamkit.serve.token import covers

Version = Annotated[str, Query(max_length=64, description="`version` of the last answer; empty for all sources")]

MAX_LOOKS = 64
"""How many groups of clients that see different sources share their looks at the sources."""


def add_many_sources(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes for many sources."""
    changes: dict[tuple[bool, frozenset[str] | None], SourceChanges] = {}  # by what their clients see
    in_turn = anyio.CapacityLimiter(1)

    @api.get("/source-changes", tags=["sources"], response_model=ChangedSources)
    async def changed(request: Request, since: Version = "") -> Response:
        """The sources that have changed since an earlier answer: cheap to ask for once a second."""
        addresses = covers(request.state.role, "operator")
        seen = (addresses, engine.rights.visible())
        if seen not in changes and len(changes) >= MAX_LOOKS:
            changes.clear()
        look = changes.setdefault(seen, SourceChanges(partial(engine.sources, addresses=addresses)))
        return reply(await anyio.to_thread.run_sync(look.since, since, limiter=in_turn))

    @api.post(
        "/source-actions",
        tags=["sources"],
        dependencies=OPERATOR,
        response_model=ActionResult,
        responses=errors(*LOCKED_ERRORS, 422),
    )
    def act(action: SourceAction, request: Request) -> Response:
        """Pause, resume or change several sources; those for which it fails are named, the others go on."""
        result = ActionResult([], [])
        for id_ in dict.fromkeys(action.ids):
            try:
                _act(engine, id_, action)
                result.done.append(id_)
            except RequestRejected as error:
                result.failed.append(SourceProblem(id_, error.text))
        for look in list(changes.values()):
            look.forget()
        values = {name: getattr(action, name) for name in ("group", "site", "add_tags", "remove_tags")}
        note(request, ", ".join(result.done), action=action.action, **{k: v for k, v in values.items() if v})
        return reply(result)


def _act(engine: ServeEngine, id_: str, action: SourceAction) -> None:
    if action.action == "pause":
        engine.pause(id_)
    elif action.action == "resume":
        engine.resume(id_)
    else:
        engine.change_details(id_, _details(engine.source(id_, addresses=False), action))


def _details(source: SourceView, action: SourceAction) -> dict[str, object]:
    """The details that an action changes of a source."""
    details: dict[str, object] = {}
    if action.group is not None:
        details["group"] = action.group
    if action.site is not None:
        details["site"] = action.site
    if action.add_tags or action.remove_tags:
        tags = dict.fromkeys([*source.tags, *action.add_tags])
        details["tags"] = [tag for tag in tags if tag not in action.remove_tags]
    return details
