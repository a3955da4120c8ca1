"""What is in a mail and how many there are: much at once, an hour's limit, pictures, and words with tricks."""

import base64

import pytest
from support.mails import HEAD, event, mailing_fixture  # noqa: F401  a fixture
from support.smtp import text_of

from streamkit.emit.client import SendError
from streamkit.emit.email import OVER_LIMIT
from streamkit.emit.sender import SENT

JPEG = b"\xff\xd8\xff\xe0 a small picture"


@pytest.mark.long
def test_events_within_seconds_share_a_mail(mail_server, mailing):
    server = mail_server()
    mailer = mailing(server, batch_window=60.0, subject="[{source}] {kind}", body="{time} {text} {stage} {track_id}")
    client = mailer.stage.sender.client
    spool = mailer.stage.queue
    take = spool.take
    client.gather_s = 60.0

    def later(*args):
        records = take(*args)
        if not records:  # it waits: something else happens, and then the run ends
            mailer.put(event("left", source="yard"))
            mailer.stage.sender.draining = True
            return take(*args)
        return records

    spool.take = later
    mailer.flow(event("crossed"), event("entered"))
    (mail,) = server.received
    assert mail["Subject"] == "[gate] crossed (and 2 more)"
    assert [line.split()[2] for line in text_of(mail).splitlines()] == ["Track", "Entered", "Left"]
    assert mailer.counters[SENT] == 3


def test_mails_are_rate_limited_and_the_omitted_records_are_counted_in_the_next(mail_server, mailing, monkeypatch):
    server = mail_server()
    now = [1_000_000.0]
    monkeypatch.setattr("streamkit.emit.email.time.time", lambda: now[0])
    mailer = mailing(server, max_per_hour=3)
    for n in range(8):
        now[0] += 1
        mailer.flow(event("crossed" if n % 2 else "entered"))
    assert len(server.received) == 3
    assert "This is the last of 3 mails within an hour." in text_of(server.received[2])
    assert "This is the last" not in text_of(server.received[1])
    assert mailer.counters[OVER_LIMIT] == 5
    assert any("the limit of 3 mails within an hour is reached" in text for text in mailer.logged)
    client = mailer.stage.sender.client
    client.connect()
    client.idle()
    assert len(server.received) == 3
    del client.rate_limit  # as after a restart
    now[0] += 3600
    client.idle()
    assert server.subjects[3] == "5 events were omitted from mails"
    text = text_of(server.received[3])
    assert "3  crossed at gate" in text
    assert "2  entered at gate" in text
    client.idle()
    assert len(server.received) == 4
    client.close()


def test_a_summary_of_omitted_records_is_retried_like_any_mail(mail_server, mailing, monkeypatch):
    server = mail_server()
    now = [1_000_000.0]
    monkeypatch.setattr("streamkit.emit.email.time.time", lambda: now[0])
    mailer = mailing(server, max_per_hour=1)
    mailer.flow(event("first"))
    mailer.flow(event("second"))
    now[0] += 3600
    client = mailer.stage.sender.client
    server.answers = ["451 later", "550 never"]
    with pytest.raises(SendError, match="451 later"):
        client.idle()
    client.idle()
    reason = "ops@example.com is not accepted: 550 never"
    assert f"refuses the mail that reports omitted events: {reason}" in mailer.logged[-1]
    client.idle()
    assert server.answers == []
    assert len(server.received) == 1
    client.close()


def test_the_image_of_an_event_is_attached(mail_server, mailing, tmp_path):
    server = mail_server()
    mailer = mailing(server, max_images=2)
    paths = [tmp_path / name for name in ("one.jpg", "two.jpeg", "three.png", "no.jpg", "key.txt")]
    paths[0].write_bytes(JPEG)
    paths[1].write_bytes(JPEG + b"2")
    paths[2].write_bytes(b"\x89PNG\r\n\x1a\n")
    paths[3].write_bytes(b"the password is")
    paths[4].write_bytes(JPEG)
    for path in [paths[3], paths[4], tmp_path / "gone.jpg"]:
        mailer.flow(event(snapshot=str(path)))
        assert list(server.received[-1].iter_attachments()) == [], path
    mailer.flow(*(event(snapshot=str(path)) for path in paths[:3]))
    attached = list(server.received[-1].iter_attachments())
    assert [(part.get_content_type(), part.get_content()) for part in attached] == [
        ("image/jpeg", JPEG),
        ("image/jpeg", JPEG + b"2"),
    ]
    values, crossed = event()
    crossed["event"]["crop"] = base64.b64encode(JPEG).decode()
    saved = event("saved", path=str(paths[1]))
    mailer.flow((values, crossed), saved)
    assert [part.get_content() for part in server.received[-1].iter_attachments()] == [JPEG, JPEG + b"2"]
    detected = {"box": [0, 0, 1, 1], "score": 0.91, "class_id": 0, "label": "person"}
    person = {**HEAD, "object": {**detected, "crop": base64.b64encode(JPEG).decode()}}
    mailer.flow((("gate", "person", "detect", "7"), person))
    assert server.received[-1]["Subject"] == "person at gate (score 0.91)"
    assert [part.get_content() for part in server.received[-1].iter_attachments()] == [JPEG]


def test_line_breaks_in_an_event_add_no_header_to_a_mail(mail_server, mailing):
    server = mail_server()
    mailer = mailing(server)
    mailer.flow(event(text="a\r\nBcc: all@example.com\r\n\r\n" + "é" * 5000))
    (mail,) = server.received
    assert mail["Bcc"] is None
    assert server.to == [["ops@example.com"]]
    assert mail["Subject"].startswith("a Bcc: all@example.com éé")
    assert len(mail["Subject"]) == 200
    mailer.flow(*(event(str(n)) for n in range(60)))
    assert "... and 10 more." in text_of(server.received[1])
