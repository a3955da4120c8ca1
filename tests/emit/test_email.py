"""E-mail to a real server: with TLS and passwords, refused and put off, broken off and gone."""

import json
from urllib.parse import quote

import pytest
from emit.test_delivery import Life
from support.mails import HEAD, event, mailing_fixture  # noqa: F401  a fixture
from support.rtsp import wait_until
from support.smtp import PASSWORD, USER, text_of

from streamkit.emit.client import RecordRejected, SendError
from streamkit.emit.email import DEFERRED_TOO_LONG, REFUSED_TO
from streamkit.emit.email import SENT as MAILS
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import LOST, REFUSED, SENT

LOGIN = f"{quote(USER)}:{quote(PASSWORD, safe='')}@"


def test_a_mail_is_sent_encrypted_with_a_password(mail_server, mail_tls, mailing):
    context, ca = mail_tls
    server = mail_server(context, auth=True)
    mailer = mailing(
        server,
        url=f"smtp://{LOGIN}127.0.0.1:{server.port}",
        unencrypted=False,
        tls={"ca": str(ca)},
        to=["ops@example.com", "Boss <boss@example.com>"],
        link="https://10.0.0.2:8000/",
    )
    mailer.flow(event(direction="in"))
    (mail,) = server.received
    assert mail["Subject"] == 'Track 7 crossed the line "line" going in at gate.'
    assert (mail["From"], mail["To"]) == ("Gate <gate@example.com>", "ops@example.com, Boss <boss@example.com>")
    assert server.to == [["ops@example.com", "boss@example.com"]]
    assert mail["Auto-Submitted"] == "auto-generated"
    assert str(mail["Message-ID"]) == f"<{mailer.stage.queue.id(1)}@example.com>"
    lines = text_of(mail).split("\n")
    assert lines[0].startswith("2026-08-0")
    assert lines[0].endswith('  Track 7 crossed the line "line" going in at gate.')
    assert lines[-2] == "https://10.0.0.2:8000/"
    assert mailer.logged == []
    assert mailer.counters.values == {MAILS: 1, SENT: 1}


def test_smtps_encrypts_from_the_first_byte(mail_server, mail_tls, mailing):
    context, ca = mail_tls
    server = mail_server(context, implicit=True)
    mailer = mailing(server, url=f"smtps://127.0.0.1:{server.port}", unencrypted=False, tls={"ca": str(ca)})
    mailer.flow(event())
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("trusted", "password", "message"),
    [
        (False, PASSWORD, "certificate verify failed"),
        (True, "wr0ng/4712", "the user or the password is refused (535 "),
    ],
)
def test_the_password_goes_to_a_verified_server_only_and_is_never_shown(
    trusted,
    password,
    message,
    mail_server,
    mail_tls,
    mailing,
):
    context, ca = mail_tls
    server = mail_server(context, auth=True)
    url = f"smtp://{quote(USER)}:{quote(password, safe='')}@127.0.0.1:{server.port}"
    mailer = mailing(server, url=url, unencrypted=False, tls={"ca": str(ca)} if trusted else None)
    mailer.put(event())
    mailer.once()
    assert message in mailer.logged[0]
    assert "records wait in the spool" in mailer.logged[0]
    shown = mailer.logged[0].replace(str(server.port), "")
    assert not any(part in shown for part in (*password.split("/"), quote(password, safe="")))
    assert server.received == []
    assert bool(server.logins) == trusted


def test_a_server_without_encryption_gets_nothing(mail_server, mailing):
    server = mail_server(auth=True)
    mailer = mailing(server, url=f"smtp://{LOGIN}127.0.0.1:{server.port}", unencrypted=False)
    mailer.put(event())
    mailer.once()
    assert "it offers no encryption (STARTTLS)" in mailer.logged[0]
    assert (server.logins, server.received) == (0, [])
    assert mailer.stage.queue.waiting == 1


def test_a_deferred_mail_is_retried_and_a_refused_mail_is_dropped(mail_server, mailing):
    server = mail_server()
    server.answers = ["451 4.7.1 greylisted, try again later", "452 4.2.2 mailbox full", None, "550 5.1.1 no such user"]
    mailer = mailing(server)
    mailer.flow(event("first"))
    assert len(server.received) == 1
    assert mailer.counters[LOST] == 2
    assert "ops@example.com is not accepted: 451 4.7.1 greylisted, try again later; records wait" in mailer.logged[0]
    mailer.flow(event("second"), event("third"))
    mailer.flow(event("fourth"))
    assert server.subjects == ["First for track 7 at gate, from line.", "Fourth for track 7 at gate, from line."]
    assert mailer.counters[REFUSED] == 2
    reason = "ops@example.com is not accepted: 550 5.1.1 no such user"
    assert f"refuses 2 records: {reason}; they are given up, counted, and" in mailer.logged[-1]
    server.data = ["451 4.3.0 busy", "554 5.7.1 this is spam"]
    mailer.flow(event("fifth"))
    assert mailer.counters[REFUSED] == 3


def test_a_deferred_recipient_does_not_delay_the_others(mail_server, mailing):
    server = mail_server()
    server.refuses = {"full@example.com": "452 full", "gone@example.com": "550 gone"}
    mailer = mailing(server, to=["ops@example.com", "full@example.com", "gone@example.com"])
    mailer.put(event("first"))
    mailer.once()
    mailer.put(event("second"))
    mailer.once()
    mailer.once()
    assert server.to == [["ops@example.com"], ["ops@example.com"]], "each event once"
    assert server.subjects == ["First for track 7 at gate, from line.", "Second for track 7 at gate, from line."]
    del server.refuses["full@example.com"]
    mailer.flow()
    assert server.to[2:] == [["full@example.com"]]
    assert "Second for track 7 at gate" in text_of(server.received[-1])
    assert mailer.counters[REFUSED_TO] >= 1
    assert mailer.counters[SENT] == 2


@pytest.mark.parametrize(("limit", "window"), [("_PATIENCE_S", 1000), ("_FULL_WINDOW_PATIENCE_S", 1)])
def test_a_recipient_deferred_for_ever_is_dropped_once_the_others_have_the_mail(
    limit,
    window,
    mail_server,
    mailing,
    monkeypatch,
):
    monkeypatch.setattr("streamkit.emit.email.WINDOW", window)
    server = mail_server()
    server.refuses = {"full@example.com": "452 full", "gone@example.com": "550 gone"}
    mailer = mailing(server, to=["ops@example.com", "full@example.com"])
    mailer.put(event("first"))
    mailer.once()
    mailer.once()
    assert mailer.stage.queue.waiting == 1, "an hour is not over"
    monkeypatch.setattr(f"streamkit.emit.email.{limit}", 0.0)
    mailer.flow(event("second"))
    assert mailer.stage.queue.waiting == 0
    assert [to for (to,) in server.to] == ["ops@example.com"] * 2
    assert (mailer.counters[DEFERRED_TOO_LONG], mailer.counters[SENT], mailer.counters[MAILS]) == (1, 2, 2)
    assert (
        "has deferred a recipient for too long: full@example.com is not accepted: 452 full; the recipient is skipped"
        in mailer.logged[-1]
    )
    lost = mailer.counters[LOST]
    mailer.flow(event("third"))
    assert (mailer.counters[DEFERRED_TOO_LONG], mailer.counters[LOST]) == (2, lost), (
        "the mail of others waits for it no more"
    )
    del server.refuses["full@example.com"]
    mailer.flow(event("fourth"))
    assert server.to[-1] == ["ops@example.com", "full@example.com"]
    assert mailer.stage.sender.client._deferred_since_s == {}
    other = mailing(server, to=["full@example.com", "gone@example.com"], spool={"path": f"{mailer.stage.folder}-other"})
    server.refuses["full@example.com"] = "452 full"
    other.put(event("fifth"))
    other.once()
    other.once()
    assert other.stage.queue.waiting == 1, "nobody has it"
    assert MAILS not in other.counters.values


def test_a_record_that_cannot_be_formatted_is_dropped_alone(mail_server, mailing):
    server = mail_server()
    mailer = mailing(server)
    strange = ("gate", "line", "crossed", "7"), {**HEAD, "event": None, "object": None, "objects": [{"no": "label"}]}
    mailer.put(event("first"), strange, event("second"))
    mailer.stage.queue.append([SpoolRecord(b"cameras/gate", b"", json.dumps(event("of another stage")[1]).encode())])
    mailer.flow(event("third"))
    assert [line.split()[2] for line in text_of(server.received[0]).splitlines()] == ["First", "Second", "Third"]
    assert len(server.received) == 1
    assert mailer.counters.values == {MAILS: 1, SENT: 3, REFUSED: 2}
    assert (
        "it cannot be described in a mail (KeyError: 'class_id'); another stage, or the same stage with"
        in mailer.logged[0]
    )
    assert "(ValueError: zip() argument 2 is shorter" in mailer.logged[1]
    mailer.flow(event("fourth", snapshot="no\0path.jpg"), event("fifth"))
    assert server.subjects[1:] == ["Fifth for track 7 at gate, from line."]
    assert mailer.counters[REFUSED] == 3


@pytest.mark.parametrize("password", ["süß/47", "пароль"])
def test_a_password_may_be_non_ascii(password, mail_server, mail_tls, mailing, monkeypatch):
    context, ca = mail_tls
    monkeypatch.setattr("support.smtp.PASSWORD", password)
    server = mail_server(context, auth=True)
    url = f"smtp://{quote(USER)}:{quote(password, safe='')}@127.0.0.1:{server.port}"
    mailer = mailing(server, url=url, unencrypted=False, tls={"ca": str(ca)})
    mailer.flow(event())
    assert len(server.received) == 1
    wrong = url.replace(quote(password, safe=""), quote("é" + password, safe=""))
    other = mailing(
        server, url=wrong, unencrypted=False, tls={"ca": str(ca)}, spool={"path": f"{mailer.stage.folder}-other"}
    )
    other.put(event())
    other.once()
    assert "the user or the password is refused (535 " in other.logged[0]
    server.stop()
    server._options["auth_exclude_mechanism"] = ["PLAIN"]
    server.start()
    with pytest.raises(SendError, match=r"characters beyond ASCII, which need AUTH PLAIN, .* set an ASCII password"):
        other.stage.sender.client.connect()


def test_a_mail_is_resent_after_a_lost_connection(mail_server, mailing):
    server = mail_server()
    server.cuts = 2
    mailer = mailing(server)
    mailer.flow(event("first"))
    assert (len(server.received), server.cuts) == (1, 0)
    assert mailer.counters[LOST] == 2
    server.stop()
    mailer.put(event("second"))
    client = mailer.stage.sender.client
    client.close()
    with pytest.raises(SendError, match="no connection"):
        client.connect()
    server.start()
    mailer.flow()
    assert server.subjects[1:] == ["Second for track 7 at gate, from line."]
    assert mailer.logged[-1].endswith("accepts records again; 1 are waiting")


def test_spooled_records_are_mailed_after_the_pipeline_was_killed(mail_server, tmp_path):
    server = mail_server()
    server.refuses["ops@example.com"] = "451 later"
    options = {
        "stage": "email",
        "url": f"smtp://127.0.0.1:{server.port}",
        "unencrypted": True,
        "mail_from": "a@b.c",
        "to": "ops@example.com",
        "send": "frames",
        "body": "{source} {text}",
        "batch_window": "100ms",
        "max_backoff": "300ms",
        "spool": {"path": str(tmp_path / "spool")},
    }
    first = Life(options, ["gate"], 10**6, 20)
    first.wait_for_first()
    wait_until(lambda: first.safe["gate"] > 5)
    first.kill()
    assert server.received == []
    server.refuses.clear()
    again = Life(options, ["last"], 1, 1)
    assert again.end() == 0
    assert "are left in" not in again.logged
    lines = [line for mail in server.received for line in text_of(mail).splitlines()]
    assert lines.count("gate nothing at gate") > first.safe["gate"]
    assert lines.count("last nothing at last") == 1


def test_a_refused_login_drops_no_records(mail_server, mailing):
    server = mail_server()
    mailer = mailing(server)
    client = mailer.stage.sender.client
    client._session = lambda: (_ for _ in ()).throw(RecordRejected("no"))
    with pytest.raises(SendError) as caught:
        client.connect()
    assert type(caught.value) is SendError
