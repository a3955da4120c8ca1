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
    tokens = [(variable, variable.set("")) for variable in (logs.SOURCE, logs.STAGE, logs.REQUEST_ID)]
    yield
    for variable, token in tokens:
        variable.reset(token)


def test_each_text_is_logged_once_with_bounded_memory(monkeypatch):
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


def test_foreign_texts_are_escaped_in_messages():
    shown = as_message("source a\x1b[2J failed\nsource b failed\u202e\r\x9b1m")
    assert shown == "source a\\x1b[2J failed\n    source b failed\\u202e\\r\\x9b1m"


def test_messages_are_logged_once_unless_errors():
    messages: list[tuple[str, int, str]] = []
    logger = logging.getLogger("streamkit.x")
    with messages_to(
        lambda log_record: messages.append((log_record.getMessage(), log_record.levelno, log_record.name))
    ) as once:
        logger.debug("nothing for a user")
        for _ in range(2):
            logger.info("news of 100 %")
            logger.error("it died")
        once.forget()
        logger.info("news of 100 %")
    news = ("news of 100 %", logging.INFO, "streamkit.x")
    died = ("it died", logging.ERROR, "streamkit.x")
    assert messages == [news, died, died, news]


def test_messages_go_to_a_single_handler_that_is_removed_afterwards():
    logger = logging.getLogger("streamkit")
    before = logger.level, logger.propagate, list(logger.handlers)
    outer: list[str] = []
    inner: list[str] = []
    with messages_to(lambda log_record: outer.append(log_record.getMessage())):
        logger.info("a")
        with contextlib.suppress(ValueError), messages_to(lambda log_record: inner.append(log_record.getMessage())):
            logger.info("b")
            raise ValueError
        logger.info("c")
    assert (outer, inner) == (["a", "c"], ["b"])
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_messages_of_workers_are_logged_once_with_their_level(caplog):
    sent: list[tuple[str, int, str, dict[str, object]]] = []
    with messages_to(lambda log_record: sent.append(portable(log_record))):  # as a worker process does
        try:
            raise ValueError("no")
        except ValueError:
            logging.getLogger("streamkit.media").warning("on the %s", "CPU", extra={"source": "a"}, exc_info=True)
    assert caplog.records == []
    ((*head, fields),) = sent
    assert head == ["on the CPU", logging.WARNING, "streamkit.media"]
    fields = pickle.loads(pickle.dumps(fields)) | {"process": 4711, "processName": "worker/cpu/0"}
    relayed = worker_log()
    other = collect()
    for _ in range(2):
        relayed(*head, fields)
    (log_record,) = caplog.records
    assert (log_record.getMessage(), log_record.levelno, log_record.name, log_record.created) == (
        *head,
        fields["created"],
    )
    assert other == ["on the CPU"]
    shown = json.loads(json_line(log_record))
    assert (shown["process"], shown["pid"], shown["source"]) == ("worker/cpu/0", 4711, "a")
    assert shown["exception"].endswith("ValueError: no")
    relayed("of another version", logging.INFO, "streamkit")
    assert other[1:] == ["of another version"]
    with messages_to(lambda log_record: other.append(log_record.getMessage()), parse_levels("warning")):
        worker_log()("below the level", logging.INFO, "streamkit")
    assert other[2:] == []


def test_a_record_is_formatted_as_json():
    log_records: list[logging.LogRecord] = []
    with messages_to(log_records.append):
        logging.getLogger("streamkit.emit.sender").warning("a\nb \x1b[2J é")
    (log_record,) = log_records
    log_record.created = 1_795_658_423.1234
    line = json_line(log_record)
    assert line.isascii()
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-26T02:00:23.123Z",
        "level": "warning",
        "logger": "streamkit.emit.sender",
        "message": "a\nb \x1b[2J é",
        "process": "main",
        "pid": os.getpid(),
    }


def test_a_record_has_the_source_stage_and_request_of_its_thread():
    log_records: list[logging.LogRecord] = []
    logger = logging.getLogger("streamkit.x")
    names = ("source", "stage", "request_id")

    def log():
        logs.SOURCE.set("gate")
        logs.STAGE.set("detect")
        logs.REQUEST_ID.set("r1")
        logger.info("one")
        logger.info("two", extra={"source": "yard"})

    with messages_to(log_records.append):
        contextvars.copy_context().run(log)
        logger.info("three")
    first, second, third = (json.loads(json_line(each)) for each in log_records)
    assert [first[name] for name in names] == ["gate", "detect", "r1"]
    assert [second[name] for name in names] == ["yard", "detect", "r1"]
    assert not third.keys() & set(names)
    assert [text_lines(each) for each in log_records] == ["one [request r1]", "two [request r1]", "three"]


def test_secrets_in_tracebacks_and_in_messages_of_libraries_are_masked():
    log_records: list[logging.LogRecord] = []
    with messages_to(log_records.append, libraries=True):
        try:
            raise ValueError("no answer of rtsp://u:geheim@h/x")
        except ValueError:
            logging.getLogger("streamkit.x").exception("it failed")
        logging.getLogger("a.library").warning("GET http://h/?token=geheim")
    lines = (
        [json_line(log_record) for log_record in log_records]
        + [text_lines(log_record) for log_record in log_records]
        + [str(portable(log_record)) for log_record in log_records]
    )
    assert [log_record.name for log_record in log_records] == ["streamkit.x", "a.library"]
    assert all("***" in line for line in lines)
    assert not any("geheim" in line for line in lines)


def test_the_log_store_of_a_server_respects_the_chosen_level():
    store = MessageStore()
    shown = []
    logger = logging.getLogger("streamkit.x")
    with (
        messages_to(lambda log_record: shown.append(log_record.getMessage()), parse_levels("warning")),
        store.receiving(),
    ):
        logger.info("a")
        logger.warning("b")
    assert shown == [message.text for message in store.messages()] == ["b"]


def test_levels_of_loggers_are_set():
    assert parse_levels("") == {}
    assert parse_levels("Warning, streamkit.emit=debug,uvicorn=info") == {
        "streamkit": logging.WARNING,
        "streamkit.emit": logging.DEBUG,
        "uvicorn": logging.INFO,
    }
    for text in ("loud", "streamkit=", "streamkit.emit=all"):
        with pytest.raises(ValueError, match="a level is one of debug, info, warning, error, critical, alone or as"):
            parse_levels(text)
    messages: list[str] = []
    loggers = [logging.getLogger(name) for name in ("streamkit.emit.sender", "streamkit.media", "uvicorn.error")]
    before = [logger.getEffectiveLevel() for logger in loggers]
    with messages_to(
        lambda log_record: messages.append(f"{log_record.name} {log_record.levelname}"),
        parse_levels("warning,streamkit.emit=debug"),
    ):
        for logger in loggers:
            for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
                logger.log(level, f"{logger.name} {level}")
    assert messages == [
        *(f"streamkit.emit.sender {level}" for level in ("DEBUG", "INFO", "WARNING", "ERROR")),
        "streamkit.media WARNING",
        "streamkit.media ERROR",
        "uvicorn.error ERROR",
    ]
    assert [logger.getEffectiveLevel() for logger in loggers] == before


def test_handlers_of_programs_can_use_the_masking_filter():
    record = logging.makeLogRecord({"msg": "%s is lost", "args": ("a",), "levelno": logging.WARNING})
    once = OncePerText()
    assert [once.filter(record), once.filter(record)] == [True, False]
