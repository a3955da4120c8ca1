"""Messages are shown once, and cannot control the terminal; workers' messages are logged by their parent."""

import contextlib
import contextvars
import json
import logging
import os
import pickle

import pytest
from support.messages import collect

from streamkit.core import logs
from streamkit.core.logs import (
    LogOnce,
    MessageStore,
    OncePerText,
    as_message,
    json_line,
    messages_to,
    parse_levels,
    portable,
    text_lines,
    worker_log,
)


@pytest.fixture(autouse=True)
def without_context():
    """A test that read a source on this thread has set its id."""
    tokens = [(one, one.set("")) for one in (logs.SOURCE, logs.STAGE, logs.REQUEST_ID)]
    yield
    for one, token in tokens:
        one.reset(token)


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
    with messages_to(lambda one: found.append((one.getMessage(), one.levelno, one.name))) as once:
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
    with messages_to(lambda one: outer.append(one.getMessage())):
        logger.info("a")
        with contextlib.suppress(ValueError), messages_to(lambda one: inner.append(one.getMessage())):
            logger.info("b")
            raise ValueError
        logger.info("c")
    assert (outer, inner) == (["a", "c"], ["b"])
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_what_a_worker_logs_is_logged_here_with_its_level_once(caplog):
    sent: list[tuple[str, int, str, dict[str, object]]] = []
    with messages_to(lambda one: sent.append(portable(one))):  # as a worker process does
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("streamkit.media").warning("on the %s", "CPU", extra={"source": "a"}, exc_info=True)
    assert caplog.records == []
    ((*known, fields),) = sent
    assert known == ["on the CPU", logging.WARNING, "streamkit.media"]
    fields = pickle.loads(pickle.dumps(fields)) | {"process": 4711, "processName": "worker/cpu/0"}
    relayed, other = worker_log(), collect()
    for _ in range(2):
        relayed(*known, fields)
    (one,) = caplog.records
    assert (one.getMessage(), one.levelno, one.name, one.created) == (*known, fields["created"])
    assert other == ["on the CPU"]
    shown = json.loads(json_line(one))
    assert (shown["process"], shown["pid"], shown["source"]) == ("worker/cpu/0", 4711, "a")
    assert shown["exception"].endswith("ValueError: no")
    relayed("of another version", logging.INFO, "streamkit")
    assert other[1:] == ["of another version"]
    with messages_to(lambda one: other.append(one.getMessage()), parse_levels("warning")):
        worker_log()("below the level", logging.INFO, "streamkit")
    assert other[2:] == []


def test_a_record_as_json():
    found: list[logging.LogRecord] = []
    with messages_to(found.append):
        logging.getLogger("streamkit.emit.sender").warning("a\nb \x1b[2J é")
    (one,) = found
    one.created = 1_795_658_423.1234
    line = json_line(one)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-26T02:00:23.123Z", "level": "warning", "logger": "streamkit.emit.sender",
        "message": "a\nb \x1b[2J é", "process": "main", "pid": os.getpid(),
    }  # fmt: skip


def test_a_record_knows_the_source_the_stage_and_the_request_of_its_thread():
    found: list[logging.LogRecord] = []
    logger, names = logging.getLogger("streamkit.x"), ("source", "stage", "request_id")

    def log():
        logs.SOURCE.set("gate")
        logs.STAGE.set("detect")
        logs.REQUEST_ID.set("r1")
        logger.info("one")
        logger.info("two", extra={"source": "yard"})

    with messages_to(found.append):
        contextvars.copy_context().run(log)
        logger.info("three")
    one, two, three = (json.loads(json_line(each)) for each in found)
    assert [one[name] for name in names] == ["gate", "detect", "r1"]
    assert [two[name] for name in names] == ["yard", "detect", "r1"]
    assert not three.keys() & set(names)
    assert [text_lines(each) for each in found] == ["one [request r1]", "two [request r1]", "three"]


def test_secrets_in_tracebacks_and_in_messages_of_libraries_are_masked():
    found: list[logging.LogRecord] = []
    with messages_to(found.append, libraries=True):
        try:
            raise ValueError("no answer of rtsp://u:geheim@h/x")
        except ValueError:
            logging.getLogger("streamkit.x").exception("it failed")
        logging.getLogger("a.library").warning("GET http://h/?token=geheim")
    lines = (
        [json_line(one) for one in found] + [text_lines(one) for one in found] + [str(portable(one)) for one in found]
    )
    assert [one.name for one in found] == ["streamkit.x", "a.library"]
    assert all("***" in line for line in lines)
    assert not any("geheim" in line for line in lines)


def test_the_store_of_a_server_keeps_to_the_level_that_was_chosen():
    store, shown = MessageStore(), []
    logger = logging.getLogger("streamkit.x")
    with messages_to(lambda one: shown.append(one.getMessage()), parse_levels("warning")), store.receiving():
        logger.info("a")
        logger.warning("b")
    assert shown == [one.text for one in store.messages()] == ["b"]


def test_levels_of_loggers():
    assert parse_levels("") == {}
    assert parse_levels("Warning, streamkit.emit=debug,uvicorn=info") == {
        "streamkit": logging.WARNING, "streamkit.emit": logging.DEBUG, "uvicorn": logging.INFO,
    }  # fmt: skip
    for text in ("loud", "streamkit=", "streamkit.emit=all"):
        with pytest.raises(ValueError, match="a level is one of debug, info, warning, error, critical, alone or as"):
            parse_levels(text)
    found: list[str] = []
    loggers = [logging.getLogger(name) for name in ("streamkit.emit.sender", "streamkit.media", "uvicorn.error")]
    before = [one.getEffectiveLevel() for one in loggers]
    with messages_to(
        lambda one: found.append(f"{one.name} {one.levelname}"), parse_levels("warning,streamkit.emit=debug")
    ):
        for one in loggers:
            for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
                one.log(level, f"{one.name} {level}")
    assert found == [
        *(f"streamkit.emit.sender {level}" for level in ("DEBUG", "INFO", "WARNING", "ERROR")),
        "streamkit.media WARNING", "streamkit.media ERROR", "uvicorn.error ERROR",
    ]  # fmt: skip
    assert [one.getEffectiveLevel() for one in loggers] == before


def test_the_filter_is_for_the_handlers_of_programs():
    record = logging.makeLogRecord({"msg": "%s is lost", "args": ("a",), "levelno": logging.WARNING})
    once = OncePerText()
    assert [once.filter(record), once.filter(record)] == [True, False]
