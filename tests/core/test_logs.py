"""Messages are shown once, and cannot control the terminal; workers' messages are logged by their parent."""

import contextlib
import logging

from support.messages import collect

from streamkit.core import logs
from streamkit.core.logs import LogOnce, OncePerText, as_message, messages_to, worker_log


def test_each_text_once_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(logs, "_REMEMBERED", 3)
    logged: list[str] = []
    log = LogOnce(logged.append)
    for text in ("a", "b", "a", "c", "a"):
        log(text)
    assert logged == ["a", "b", "c"]
    log("d")  # the oldest is forgotten
    for text in ("b", "c", "d", "a"):
        log(text)
    assert logged == ["a", "b", "c", "d", "a"]


def test_a_text_from_outside_neither_acts_on_a_terminal_nor_looks_like_a_message_of_its_own():
    shown = as_message("source a\x1b[2J failed\nsource b failed\u202e\r\x9b1m")
    assert shown == "source a\\x1b[2J failed\n    source b failed\\u202e\\r\\x9b1m"


def test_messages_have_a_level_and_come_once_unless_they_are_errors():
    found: list[tuple[str, int, str]] = []
    logger = logging.getLogger("streamkit.x")
    with messages_to(lambda *one: found.append(one)) as once:
        logger.debug("nothing for a user")
        for _ in range(2):
            logger.info("news of 100 %")
            logger.error("it died")
        once.forget()
        logger.info("news of 100 %")
    news, died = ("news of 100 %", logging.INFO, "streamkit.x"), ("it died", logging.ERROR, "streamkit.x")
    assert found == [news, died, died, news]


def test_messages_go_to_one_place_at_a_time_and_nothing_is_left_behind():
    logger = logging.getLogger("streamkit")
    before = logger.level, logger.propagate, list(logger.handlers)
    outer: list[str] = []
    inner: list[str] = []
    with messages_to(lambda text, *_: outer.append(text)):
        logger.info("a")
        with contextlib.suppress(ValueError), messages_to(lambda text, *_: inner.append(text)):
            logger.info("b")
            raise ValueError
        logger.info("c")
    assert (outer, inner) == (["a", "c"], ["b"])
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_what_a_worker_logs_is_logged_here_with_its_level_once(caplog):
    sent: list[tuple[str, int, str]] = []
    with messages_to(lambda *one: sent.append(one)):  # as a worker process does
        logging.getLogger("streamkit.media").warning("on the CPU")
    assert caplog.records == []
    relayed, other = worker_log(), collect()
    for one in sent * 2:
        relayed(*one)
    assert [(one.getMessage(), one.levelno, one.name) for one in caplog.records] == sent
    assert other == ["on the CPU"]


def test_the_filter_is_for_the_handlers_of_programs():
    record = logging.makeLogRecord({"msg": "%s is lost", "args": ("a",), "levelno": logging.WARNING})
    once = OncePerText()
    assert [once.filter(record), once.filter(record)] == [True, False]
