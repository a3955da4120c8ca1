# SPDX-License-Identifier: Apache-2.0
"""People: those who sign in with a name and password, or at a provider."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from streamkit.serve.access import Access
from streamkit.serve.access_models import NewPerson, OneTimePassword, PersonRights, PersonView
from streamkit.serve.audit import note
from streamkit.serve.people import Person
from streamkit.serve.routes.common import ADMIN, LOCKED_ERRORS, errors, reply

PersonName = Annotated[str, Path(max_length=64, description="name of the person")]


def add_people(api: APIRouter, access: Access) -> None:
    """Add the routes of people."""
    admin: dict[str, Any] = {"tags": ["access"], "dependencies": ADMIN}
    failures = errors(*LOCKED_ERRORS, 404, 409, 422, 503)

    def view(person: Person) -> PersonView:
        sessions = [session for session in access.sessions.all() if session.key == person.key]
        times = [session.used_s for session in sessions]
        seen_s = max([*times, *([] if person.seen_s is None else [person.seen_s])], default=None)
        return PersonView(
            person.name,
            person.role,
            None if person.groups is None else list(person.groups),
            person.origin,
            person.created_s,
            person.created_by,
            person.one_time_until_s is not None,
            None if seen_s is None else round(seen_s, 3),
            len(sessions),
        )

    @api.get("/people", response_model=list[PersonView], responses=errors(*LOCKED_ERRORS, 503), **admin)
    def people() -> Response:
        """All people."""
        return reply([view(person) for person in access.people()])

    @api.post("/people", response_model=OneTimePassword, status_code=201, responses=failures, **admin)
    async def create(new: NewPerson, request: Request) -> Response:
        """Create a person. The response is the only place where the one-time password appears."""
        note(request, new.name, gives=new.role, groups=new.groups)
        password = await access.create_person(new.name, new.role, new.groups, request.state.name)
        return reply(OneTimePassword(new.name, password), 201)

    @api.put("/people/{name}", response_model=PersonView, responses=failures, **admin)
    async def change(name: PersonName, rights: PersonRights, request: Request) -> Response:
        """Change the role and the camera groups of a person; they are in force at once."""
        note(request, gives=rights.role, groups=rights.groups)
        return reply(view(access.change_person(name, rights.role, rights.groups)))

    @api.post("/people/{name}/reset", response_model=OneTimePassword, responses=failures, **admin)
    async def reset(name: PersonName) -> Response:
        """Replace the password of a person by a one-time password, and end the person's sessions."""
        return reply(OneTimePassword(name, await access.reset_password(name)))

    @api.delete("/people/{name}", status_code=204, responses=failures, **admin)
    async def remove(name: PersonName) -> Response:
        """Remove a person; the person's sessions end at once."""
        access.remove_person(name)
        return Response(status_code=204)
