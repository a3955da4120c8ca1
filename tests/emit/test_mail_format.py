"""What stands in a mail, to the line and the byte; mails that go through a server are in test_email_letters.py."""

import base64
from dataclasses import replace

import pytest

from streamkit.emit.mail_format import MailFormat, MailRecord, address_in, image_of, mail_record

JPEG = b"\xff\xd8\xff"
PNG = b"\x89PNG\r\n\x1a\n"
FORM = MailFormat("Gate <gate@site.example>", ("a@b.c", "d@e.f"), "{text}", "- {text}", link="http://site")


def texts(*numbers, **record):
    return [MailRecord(record, {"text": f"n {n}"}) for n in numbers]


def text_in(mail):
    return mail.get_body().get_content()


def crop(data):
    return MailRecord({"object": {"crop": base64.b64encode(data).decode()}}, {"text": "x"})


def attached(mail):
    return [(part.get_filename(), part.get_content_type(), part.get_content()) for part in mail.iter_attachments()]


def test_the_head_of_a_mail():
    mail = FORM.message("s-7", texts(1), {})
    assert (mail["From"], mail["To"]) == ("Gate <gate@site.example>", "a@b.c, d@e.f")
    assert (mail["Message-ID"], mail["Auto-Submitted"]) == ("<s-7@site.example>", "auto-generated")
    assert (address_in("Gate <gate@site.example>"), address_in("")) == ("gate@site.example", "")


@pytest.mark.parametrize(("count", "subject"), [(1, "n 0"), (2, "n 0 (and 1 more)"), (9, "n 0 (and 8 more)")])
def test_the_subject_describes_the_first_record_and_counts_the_others(count, subject):
    assert FORM.message("s", texts(*range(count)), {})["Subject"] == subject


def test_a_subject_has_at_most_200_characters_and_no_line_breaks():
    long = [MailRecord({}, {"text": "a \n b" + "c" * 300})] * 2
    assert FORM._subject(long[:1], {}) == "a b" + "c" * 197
    assert FORM._subject(long, {}) == "a b" + "c" * (197 - len(" (and 1 more)")) + " (and 1 more)"


def test_a_mail_lists_fifty_records_and_counts_the_others():
    assert (
        text_in(FORM.message("s", texts(*range(50)), {}))
        == "".join(f"- n {n}\n" for n in range(50)) + "\nhttp://site\n"
    )
    text = text_in(FORM.message("s", texts(*range(52)), {}))
    assert text == "".join(f"- n {n}\n" for n in range(50)) + "\n... and 2 more.\n\nhttp://site\n"


def test_omitted_events_are_listed_by_decreasing_count():
    mail = FORM.message("s", [], {"a": 2, "b": 30, "others": 1}, "A note.")
    assert mail["Subject"] == "33 events were omitted from mails"
    assert text_in(mail) == (
        "Omitted since the last mail, because the limit of mails was reached:\n"
        "      30  b\n       2  a\n       1  others\n\n"
        "A note.\n\nhttp://site\n"
    )


def test_at_most_four_distinct_images_are_attached():
    images = [JPEG + bytes([n]) for n in range(5)]
    records = [crop(images[0]), crop(images[0]), crop(b"#!/bin/sh"), crop(PNG), *map(crop, images[1:])]
    attachments = attached(FORM.message("s", records, {}))
    assert attachments == [
        ("1.jpg", "image/jpeg", images[0]),
        ("2.png", "image/png", PNG),
        ("3.jpg", "image/jpeg", images[1]),
        ("4.jpg", "image/jpeg", images[2]),
    ]
    assert attached(MailFormat("a@b.c", ("a@b.c",), "", "", images=0).message("s", records, {})) == []


def test_images_share_a_byte_limit_and_a_smaller_image_may_still_fit():
    records = [crop(JPEG + b"1234"), crop(JPEG + b"5678"), crop(JPEG + b"9")]
    for limit_bytes, names in ((14, [7, 7]), (13, [7, 4]), (11, [7, 4]), (10, [7]), (6, [4]), (3, [])):
        mail = FORM.message("s", records, {}, max_image_bytes=limit_bytes)
        assert [len(data) for _, _, data in attached(mail)] == names, limit_bytes


@pytest.mark.parametrize(
    ("event", "taken"),
    [
        ({"data": {"snapshot": "{}/a.jpg"}}, True),
        ({"data": {"snapshot": "{}/a.JPG"}}, True),
        ({"data": {"snapshot": "{}/a.txt"}}, False),
        ({"data": {"snapshot": "{}/none.jpg"}}, False),
        ({"kind": "saved", "data": {"path": "{}/a.jpg"}}, True),
        ({"kind": "seen", "data": {"path": "{}/a.jpg"}}, False),
        ({"crop": "no base64!"}, False),
        ({}, False),
    ],
)
def test_an_image_is_a_crop_or_an_image_file_within_the_size_limit(tmp_path, event, taken):
    for name in ("a.jpg", "a.JPG", "a.txt"):
        (tmp_path / name).write_bytes(JPEG)
    data = {name: path.format(tmp_path) for name, path in event.get("data", {}).items()}
    record = {"event": {**event, "data": data}}
    assert image_of(record, 3) == (JPEG if taken else None)
    assert image_of(record, 2) is None


def test_the_link_opens_the_first_event_of_the_mail():
    event = {"kind": "too close", "stage": "mine", "data": {}}
    record = {"source": "gate&1", "frame": 3, "pts_s": 1.0, "time": "2026-08-01T12:00:00.250Z", "event": event}
    records = [mail_record(record, (), ()), mail_record({**record, "source": "yard"}, (), ())]
    for link, ending in (
        ("http://site:8000/#/events", "?source=gate%261&kind=too+close&at=1785585600.250"),
        ("http://site:8000/", ""),
    ):
        form = replace(FORM, link=link)
        assert form.message("id", records, {}).get_content().split("\n\n")[-1].strip() == link + ending
        assert form.message("id", [], {"x": 1}).get_content().strip().endswith(link)
