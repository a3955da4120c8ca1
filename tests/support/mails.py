"""Events to tell by mail, and a stage `email` that is open, with its spool."""

import json

import pytest

from streamkit.core.counters import Counters
from streamkit.core.stage import Context
from streamkit.emit.segment_file import SpoolRecord
from streamkit.emit.sender import LOST
from streamkit.stages.sinks.email import EmailSink
from support.messages import collect

HEAD = {"schema": "streamkit/1", "source": "gate", "frame": 7, "pts_s": 0.28, "time": "2026-08-01T12:00:00.250Z"}


def event(kind="crossed", source="gate", **data):
    event_record = {"kind": kind, "stage": "line", "track_id": 7, "data": data}
    return (source, "line", kind, "7"), {**HEAD, "source": source, "width": 4, "height": 2, "event": event_record}


@pytest.fixture(name="mailing")
def mailing_fixture(tmp_path):
    """A stage `email` that is open, with its spool; `flow` sends records until all are dealt with, as a run does."""
    opened = []

    class Mailing:
        def __init__(self, server, **options):
            defaults = {
                "url": f"smtp://127.0.0.1:{server.port}",
                "unencrypted": True,
                "batch_window": 0.0,
                "max_backoff": 0.3,
                "timeout": 5.0,
            }
            defaults |= {
                "mail_from": "Gate <gate@example.com>",
                "to": "ops@example.com",
                "spool": {"path": str(tmp_path / "s")},
            }
            self.stage = EmailSink(**{**defaults, **options})
            self.logged = collect()
            self.counters = Counters()
            self.stage.context = Context("mail", counters=self.counters)
            self.stage.open()
            opened.append(self)

        def put(self, *events):
            fill = self.stage._topics.fill
            self.stage.queue.append(
                [SpoolRecord(*fill(values), b"", json.dumps(body).encode()) for values, body in events]
            )

        def flow(self, *events):
            self.put(*events)
            self.stage.sender.run(lambda: not self.stage.queue.waiting)

        def once(self):
            """One try."""
            client = self.stage.sender.client
            tried = []
            real = client.deliver
            client.deliver = lambda messages: (tried.append(messages), real(messages))
            lost = self.counters[LOST]
            self.stage.sender.run(lambda: bool(tried) or self.counters[LOST] > lost)
            client.deliver = real

    yield Mailing
    for mailing in opened:
        mailing.stage.queue.close()
