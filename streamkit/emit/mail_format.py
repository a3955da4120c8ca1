# SPDX-License-Identifier: Apache-2.0
"""Formats mails from records: subject and text from templates, attached images, and counts of omitted records."""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from streamkit.core.data import Event
from streamkit.core.sentences import sentence
from streamkit.emit.record_selection import NONE

if TYPE_CHECKING:
    from email.message import EmailMessage

VARIABLES = ("text", "time")
"""Variables of templates besides those of topics."""

MAX_IMAGE_BYTES = 10_000_000
"""Maximum size of the images in one mail, in bytes; less if the server accepts less."""

EVENTS_VIEW = "#/events"
"""The end of a link to the events on the page of `streamkit serve`."""

_LINES = 50
_SUBJECT = 200  # characters
_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"


class MailRecord(NamedTuple):
    """A record with the values of its variables."""

    record: dict[str, Any]
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MailFormat:
    """What mails look like.

    Attributes:
        sender: sender address, optionally after a name.
        to: recipient addresses.
        subject: template, filled from the first record.
        body: template, filled from each record.
        link: address at the end of the mail.
        images: maximum number of attached images.
    """

    sender: str
    to: tuple[str, ...]
    subject: str
    body: str
    link: str | None = None
    images: int = 4

    def message(
        self,
        id_: str,
        records: Sequence[MailRecord],
        omitted: Mapping[str, int],
        note: str = "",
        max_image_bytes: int = MAX_IMAGE_BYTES,
    ) -> EmailMessage:
        """Create a mail for some records.

        Args:
            id_: unique id of the mail; the same when the mail is sent again.
            records: the records; may be empty.
            omitted: number of records omitted from earlier mails, by title.
            note: an additional sentence.
            max_image_bytes: maximum size of the images; further images are omitted.
        """
        from email.message import EmailMessage
        from email.policy import SMTP
        from email.utils import format_datetime

        mail = EmailMessage(policy=SMTP.clone(cte_type="7bit"))  # any server accepts it
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.to)
        mail["Subject"] = self._subject(records, omitted)
        mail["Date"] = format_datetime(datetime.now().astimezone())
        mail["Message-ID"] = f"<{id_}@{address_in(self.sender).rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"  # no out-of-office reply answers it
        mail.set_content(self._text(records, omitted, note))
        for number, (kind, data) in enumerate(self._images(records, max_image_bytes), 1):
            name = f"{number}.{kind.replace('jpeg', 'jpg')}"
            mail.add_attachment(data, maintype="image", subtype=kind, filename=name)
        return mail

    def _subject(self, records: Sequence[MailRecord], omitted: Mapping[str, int]) -> str:
        if not records:
            return f"{sum(omitted.values())} events were omitted from mails"
        more = f" (and {len(records) - 1} more)" if len(records) > 1 else ""
        text = " ".join(fill(self.subject, records[0].values).split())
        return text[: _SUBJECT - len(more)] + more

    def _text(self, records: Sequence[MailRecord], omitted: Mapping[str, int], note: str) -> str:
        parts = ["\n".join(fill(self.body, record.values) for record in records[:_LINES])]
        if len(records) > _LINES:
            parts.append(f"... and {len(records) - _LINES} more.")
        if omitted:
            counts = (f"  {n:6}  {title}" for title, n in sorted(omitted.items(), key=lambda item: -item[1]))
            parts.append("Omitted since the last mail, because the limit of mails was reached:\n" + "\n".join(counts))
        parts += [part for part in (note, self._link(records)) if part]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _link(self, records: Sequence[MailRecord]) -> str | None:
        """The link; one to the page's events opens the first event of the mail."""
        first = records[0].record if records else {}
        event = first.get("event")
        time = first.get("time")
        if self.link is None or not self.link.endswith(EVENTS_VIEW) or event is None or not isinstance(time, str):
            return self.link
        at_s = f"{datetime.fromisoformat(time).timestamp():.3f}"
        return f"{self.link}?{urlencode({'source': first['source'], 'kind': event['kind'], 'at': at_s})}"

    def _images(self, records: Sequence[MailRecord], max_image_bytes: int) -> list[tuple[str, bytes]]:
        images: list[tuple[str, bytes]] = []
        for record in records:
            if len(images) >= self.images:
                break
            data = image_of(record.record, max_image_bytes - sum(len(image) for _, image in images))
            if data is not None and (kind := _kind(data)) and all(data != image for _, image in images):
                images.append((kind, data))
        return images


def address_in(text: str) -> str:
    """The bare address, without the name before it; "" if there is none."""
    from email.utils import parseaddr

    return parseaddr(text)[1]


def fill(template: str, values: Mapping[str, str]) -> str:
    """Fill a template with these values."""
    return re.sub(r"\{([^{}]*)\}", lambda match: values[match[1]], template)


def mail_record(record: dict[str, Any], names: Sequence[str], values: Sequence[str]) -> MailRecord:
    """A record with the values of its variables: those of its topic, its text and its time."""
    variables = dict(zip(names, values, strict=True))
    return MailRecord(record, {**variables, "text": summary(record), "time": when(record)})


def image_of(record: Mapping[str, Any], max_bytes: int) -> bytes | None:
    """The image that a record contains or names, if available and small enough: a crop, or a file."""
    event = record.get("event", {})
    crop = record.get("object", event).get("crop")
    if isinstance(crop, str):
        try:
            data = base64.b64decode(crop, validate=True)
        except binascii.Error:
            return None
        return data if len(data) <= max_bytes else None
    data_of = event.get("data", {})
    path = data_of.get("snapshot") or (data_of.get("path") if event.get("kind") == "saved" else None)
    if not isinstance(path, str) or Path(path).suffix.lower() not in (".jpg", ".jpeg", ".png"):
        return None
    try:
        return Path(path).read_bytes() if Path(path).stat().st_size <= max_bytes else None
    except OSError:
        return None


def _kind(data: bytes) -> str:
    """Image type from the first bytes; other files are never attached."""
    return "jpeg" if data.startswith(_JPEG) else "png" if data.startswith(_PNG) else ""


# ----------------------------------------------------------------------------------------------- records in words


def summary(record: dict[str, Any]) -> str:
    """One line: `Car 7 crossed the line "door" going in at gate.`, `person at gate (track 7)`, `2 person at gate`.

    An event with its own text, such as an alarm, is described by that text. An event of a plugin is described by its
    data: `Too close for track 7 at gate, from near: meters 1.5.`
    """
    source = record["source"]
    if (event := record.get("event")) is not None:
        data = event.get("data", {})
        if isinstance(text := data.get("text"), str) and text:
            return " ".join(text.split())
        track = event.get("track_id", NONE)
        track = None if track == NONE else track
        return sentence(Event(event["kind"], event["stage"], source, record["frame"], record["pts_s"], track, data))
    if (detection := record.get("object")) is not None:
        score = detection.get("score")  # None if the model gave no score
        track = detection.get("track_id", NONE)
        about = [f"track {track}"] * (track != NONE) + ([] if score is None else [f"score {score:.2f}"])
        behind = f" ({', '.join(about)})" if about else ""
        return f"{detection.get('label', detection['class_id'])} at {source}{behind}"
    if error := record.get("error"):
        return f"{source}: {' '.join(str(error).split())}"
    counts = Counter(detection.get("label", detection["class_id"]) for detection in record["objects"])
    return f"{', '.join(f'{n} {label}' for label, n in counts.items()) or 'nothing'} at {source}"


def when(record: dict[str, Any]) -> str:
    """Local time of a record; for recordings, which have no such time, the position in seconds."""
    if isinstance(time := record.get("time"), str):
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"{record['pts_s']:.2f} s"


def title(record: dict[str, Any]) -> str:
    """Title that records of the same kind share: `camera_down raised at gate`, `crossed at gate`."""
    source = record["source"]
    if (event := record.get("event")) is not None:
        name = event.get("data", {}).get("alarm")
        return f"{name} {event['kind']} at {source}" if name else f"{event['kind']} at {source}"
    detection = record.get("object")
    return (
        f"frames of {source}" if detection is None else f"{detection.get('label', detection['class_id'])} at {source}"
    )
