"""Messages that are fetched: what arrives, in which order, and who waits for what."""

import logging
import os
import threading
import time

from streamkit.core.errors import ConfigError
from streamkit.runtime.execution.future import start
from streamkit.runtime.multiprocess.children import Mailbox, ParentConnection, error_of
from streamkit.runtime.multiprocess.messages import Fatal, Logged


def test_messages_are_fetched_in_order():
    box = Mailbox()
    for number in range(3):
        box.send(("note", number))
    assert box.fetch() == [("note", 0), ("note", 1), ("note", 2)]
    box.log(logging.makeLogRecord({"name": "streamkit", "levelno": 20, "msg": "more"}))
    (log,) = box.fetch()
    assert isinstance(log, Logged)
    *message, fields = log.record
    assert message == ["more", 20, "streamkit"]
    assert fields["process"] == os.getpid()


def test_fetching_waits_for_a_message():
    box = Mailbox()
    fetched = []
    thread = start("fetch", lambda: fetched.extend(box.fetch()))
    time.sleep(0.05)
    assert not fetched
    box.send(("ready", None))
    thread.join(5)
    assert fetched == [("ready", None)]


def test_an_outcome_counts_as_sent_once_received():
    box = Mailbox()
    sent = threading.Event()

    def send():
        box.deliver(("outcome", 7))
        sent.set()  # here the process may end

    start("send", send)
    assert box.fetch() == [("outcome", 7)]
    assert not sent.wait(0.05)  # the answer may be on its way still
    start("fetch", box.fetch)
    assert sent.wait(5)


def test_a_worker_receives_its_orders_and_sends_its_outcome():
    def life(link: ParentConnection, greeting: str) -> None:
        for kind, value in link.orders():
            link.send((kind, f"{greeting} {value}"))
            if kind == "end":
                raise ConfigError("no such model")

    box = Mailbox()
    start("worker", lambda: box.run(life, "done:"))
    box.order(("job", 1))
    box.order(("end", 2))
    heard = []
    while len(heard) < 3:
        heard += box.fetch()
    assert heard[:2] == [("job", "done: 1"), ("end", "done: 2")]
    assert heard[2] == Fatal("ConfigError", "no such model")
    error = error_of(heard[2].kind, heard[2].text)
    assert (type(error), str(error)) == (ConfigError, "no such model")
