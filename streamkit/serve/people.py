# SPDX-License-Identifier: Apache-2.0
"""People who sign in: those whom an admin created, and those of an identity provider."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from streamkit.core.errors import OutputError
from streamkit.io.private_file import write_private
from streamkit.serve.passwords import ONE_TIME_S
from streamkit.serve.token import Role

MAX_PEOPLE = 5000

Origin = Literal["page", "provider"]


@dataclass(frozen=True, slots=True)
class Person:
    """A person, without the password.

    Attributes:
        key: identifies the person; who is created again under the same name has another key.
        name: the name to sign in with.
        role: what the person may do.
        groups: the camera groups that the person may see; None for all cameras.
        hash: argon2id of the password; empty for a person of a provider.
        origin: `page` if an admin created the person, `provider` if OpenID Connect did.
        created_s: when, in seconds since 1970.
        created_by: the admin, or the provider's address.
        one_time_until_s: until when the password can be used, for one sign-in; None if the person chose it.
        seen_s: the last sign-in, in seconds since 1970; None if there was none.
    """

    key: str
    name: str
    role: Role
    groups: tuple[str, ...] | None
    hash: str
    origin: Origin
    created_s: float
    created_by: str
    one_time_until_s: float | None = None
    seen_s: float | None = None


class PeopleStore:
    """The people of a server, in a file that only its owner may read. Methods that change it belong to one thread.

    The file is read again when another process has changed it.

    Args:
        path: the file; created with the first person.
        clock: the time in seconds since 1970.

    Raises:
        OutputError: the file cannot be read or written; every method may raise it.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._seen: tuple[int, int, int] | None = None
        self._people = dict[str, Person]()
        self.all()

    def all(self) -> list[Person]:
        """The people, in the order in which they were created."""
        try:
            about = self._path.stat()
        except FileNotFoundError:
            self._seen = None
            self._people = {}
            return []
        except OSError as error:
            raise self._error(error) from None
        seen = about.st_mtime_ns, about.st_ino, about.st_size
        if seen != self._seen:
            self._people = self._read()
            self._seen = seen
        return list(self._people.values())

    def named(self, name: str) -> Person | None:
        """The person with a name; capital letters do not matter."""
        wanted = name.casefold()
        return next((person for person in self.all() if person.name.casefold() == wanted), None)

    def with_key(self, key: str) -> Person | None:
        """The person with a key."""
        self.all()
        return self._people.get(key)

    def create(self, name: str, role: Role, groups: tuple[str, ...] | None, by: str, one_time_hash: str) -> Person:
        """Add a person, who signs in with a one-time password first."""
        now_s = round(self._clock(), 3)
        key = f"person:{secrets.token_hex(8)}"
        person = Person(key, name, role, groups, one_time_hash, "page", now_s, by, now_s + ONE_TIME_S)
        return self.put(person)

    def reset(self, person: Person, one_time_hash: str) -> Person:
        """Replace a person's password by a one-time password."""
        return self.put(replace(person, hash=one_time_hash, one_time_until_s=round(self._clock() + ONE_TIME_S, 3)))

    def choose(self, person: Person, password_hash: str) -> Person:
        """Replace a person's password by the one that the person chose."""
        return self.put(replace(person, hash=password_hash, one_time_until_s=None))

    def seen(self, person: Person) -> Person:
        """Note that a person signs in now."""
        return self.put(replace(person, seen_s=round(self._clock(), 3)))

    def expired(self, person: Person) -> bool:
        """Whether a person has a one-time password that is too old."""
        return person.one_time_until_s is not None and self._clock() > person.one_time_until_s

    def put(self, person: Person) -> Person:
        """Store a person, new or changed."""
        self.all()
        self._save({**self._people, person.key: person})
        return person

    def remove(self, person: Person) -> None:
        """Remove a person."""
        self.all()
        self._save({key: other for key, other in self._people.items() if key != person.key})

    def _read(self) -> dict[str, Person]:
        try:
            rows = json.loads(self._path.read_text())
            people = [
                Person(**{**row, "groups": None if row["groups"] is None else tuple(row["groups"])}) for row in rows
            ]
        except OSError as error:
            raise self._error(error) from None
        except (ValueError, TypeError, KeyError):
            raise OutputError(f"{self._path} is damaged; repair it, or remove it to create all people again") from None
        return {person.key: person for person in people}

    def _save(self, people: dict[str, Person]) -> None:
        """Store these people; they are in force once they are stored."""
        try:
            write_private(self._path, json.dumps([asdict(person) for person in people.values()], indent=1))
        except OSError as error:
            raise self._error(error) from None
        self._people = people
        about = self._path.stat()
        self._seen = about.st_mtime_ns, about.st_ino, about.st_size

    def _error(self, error: OSError) -> OutputError:
        return OutputError(f"cannot use the people in {self._path}: {error.strerror}; give another folder with --data")
