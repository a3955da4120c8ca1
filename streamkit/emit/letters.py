"""Mails made of records: subject and text by template, pictures attached, and what was left out before."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.emit import telling

if TYPE_CHECKING:
    from email.message import EmailMessage

VARIABLES = ("text", "time")
"""What templates may name beside those of topics."""

MOST_BYTES = 10_000_000
"""Pictures in one mail, in bytes; less where the server takes less."""

_LINES = 50
_SUBJECT = 200  # characters
_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"


class Told(NamedTuple):
    """A record with the values of its variables."""

    record: dict[str, Any]
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """What mails look like.

    Attributes:
        sender: the address that they come from; a name may stand before it.
        to: the addresses that they go to.
        subject: a template, filled from the first record.
        body: a template, filled from each of the records.
        link: an address that stands at the end.
        pictures: how many are attached to one mail at most.
    """

    sender: str
    to: tuple[str, ...]
    subject: str
    body: str
    link: str | None = None
    pictures: int = 4

    def letter(
        self, id_: str, records: Sequence[Told], left_out: Mapping[str, int], note: str = "",
        most_bytes: int = MOST_BYTES,
    ) -> EmailMessage:  # fmt: skip
        """A mail of some records.

        Args:
            id_: no other mail has it, and the same mail has it again when it is sent again.
            records: what is told; may be none.
            left_out: how many records were left out of mails before, by title.
            note: a further sentence.
            most_bytes: of pictures; those that would be too many are left out.
        """
        from email.message import EmailMessage
        from email.policy import SMTP
        from email.utils import format_datetime

        made = EmailMessage(policy=SMTP.clone(cte_type="7bit"))  # any server takes it
        made["From"], made["To"] = self.sender, ", ".join(self.to)
        made["Subject"] = self._subject(records, left_out)
        made["Date"] = format_datetime(datetime.now().astimezone())
        made["Message-ID"] = f"<{id_}@{address_in(self.sender).rpartition('@')[2]}>"
        made["Auto-Submitted"] = "auto-generated"  # nobody's holiday note answers it
        made.set_content(self._text(records, left_out, note))
        for number, (kind, data) in enumerate(self._pictures(records, most_bytes), 1):
            made.add_attachment(
                data, maintype="image", subtype=kind, filename=f"{number}.{kind.replace('jpeg', 'jpg')}"
            )
        return made

    def _subject(self, records: Sequence[Told], left_out: Mapping[str, int]) -> str:
        if not records:
            return f"{sum(left_out.values())} events were left out of mails"
        more = f" (and {len(records) - 1} more)" if len(records) > 1 else ""
        text = " ".join(fill(self.subject, records[0].values).split())
        return text[: _SUBJECT - len(more)] + more

    def _text(self, records: Sequence[Told], left_out: Mapping[str, int], note: str) -> str:
        parts = ["\n".join(fill(self.body, one.values) for one in records[:_LINES])]
        if len(records) > _LINES:
            parts.append(f"... and {len(records) - _LINES} more.")
        if left_out:
            counts = (f"  {n:6}  {title}" for title, n in sorted(left_out.items(), key=lambda item: -item[1]))
            parts.append("Left out before, because there were too many mails:\n" + "\n".join(counts))
        parts += [one for one in (note, self.link) if one]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _pictures(self, records: Sequence[Told], most_bytes: int) -> list[tuple[str, bytes]]:
        found: list[tuple[str, bytes]] = []
        for one in records:
            if len(found) >= self.pictures:
                break
            data = picture_of(one.record, most_bytes - sum(len(known) for _, known in found))
            if data is not None and (kind := _kind(data)) and all(data != known for _, known in found):
                found.append((kind, data))
        return found


def address_in(text: str) -> str:
    """The address alone, without the name that may stand before it; "" where there is none."""
    from email.utils import parseaddr

    return parseaddr(text)[1]


def fill(template: str, values: Mapping[str, str]) -> str:
    """A template with these values in it."""
    return re.sub(r"\{([^{}]*)\}", lambda match: values[match[1]], template)


def told(record: dict[str, Any], names: Sequence[str], values: Sequence[str]) -> Told:
    """A record with the values of its variables: those of its topic, and how it is told to people."""
    return Told(
        record, {**dict(zip(names, values, strict=True)), "text": telling.told(record), "time": telling.when(record)}
    )


def picture_of(record: Mapping[str, Any], most_bytes: int) -> bytes | None:
    """The picture that a record brings or names, where it is there and is no larger: a crop, or a file."""
    event = record.get("event", {})
    crop = record.get("object", event).get("crop")
    if isinstance(crop, str):
        try:
            data = base64.b64decode(crop, validate=True)
        except binascii.Error:
            return None
        return data if len(data) <= most_bytes else None
    data_of = event.get("data", {})
    path = data_of.get("snapshot") or (data_of.get("path") if event.get("kind") == "saved" else None)
    if not isinstance(path, str) or Path(path).suffix.lower() not in (".jpg", ".jpeg", ".png"):
        return None
    try:
        return Path(path).read_bytes() if Path(path).stat().st_size <= most_bytes else None
    except OSError:
        return None


def _kind(data: bytes) -> str:
    """What a picture is by its first bytes; no other file is ever attached."""
    return "jpeg" if data.startswith(_JPEG) else "png" if data.startswith(_PNG) else ""
