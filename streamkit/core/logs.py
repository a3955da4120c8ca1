# SPDX-License-Identifier: Apache-2.0
"""Messages to the user: each module logs to `logging.getLogger(__name__)`, below the logger `streamkit`.

The commands show these messages with `messages_to`, as text or as JSON. A program that uses the package configures
logging as usual.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from streamkit.core.masking import mask
from streamkit.core.text import printable

ROOT = "streamkit"
"""The logger above all loggers of the package."""
STAGES = "streamkit.stages"
"""The logger of `Context.log`."""

SOURCE: ContextVar[str] = ContextVar("source", default="")
"""The source that the thread reads."""
STAGE: ContextVar[str] = ContextVar("stage", default="")
"""The stage that the thread runs."""
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the HTTP request that is being served."""

FORMAT_VARIABLE = "STREAMKIT_LOG_FORMAT"
LEVEL_VARIABLE = "STREAMKIT_LOG_LEVEL"
"""Environment variables with the format and the levels; worker processes inherit them."""

MAX_MESSAGES = 2000
"""Number of messages that a `MessageStore` keeps."""

_REMEMBERED = 1000
_CONTEXT = {"source": SOURCE, "stage": STAGE, "request_id": REQUEST_ID}
_LEVELS = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error", "critical")}
_DEFAULT_LEVELS = {ROOT: logging.INFO, "uvicorn": logging.ERROR}  # the loggers whose messages the commands show
_formatter = logging.Formatter()


class OncePerText(logging.Filter):
    """Drops records below ERROR whose text was logged before. Only the last 1,000 texts are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self._texts: OrderedDict[str, object] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record."""
        return record.levelno >= logging.ERROR or self.is_new(record.getMessage())

    def is_new(self, text: str) -> bool:
        """Whether the text was not logged before; remembers it. Thread-safe: each step is one call of the dict."""
        marker = object()
        if self._texts.setdefault(text, marker) is not marker:
            return False
        if len(self._texts) > _REMEMBERED:
            self._texts.popitem(last=False)
        return True

    def forget(self) -> None:
        """Forget all texts."""
        self._texts.clear()


class LogOnce:
    """Logs each text once, from any thread: for messages about what every frame may repeat.

    Args:
        log: logs a text, such as `logger.warning`.
    """

    def __init__(self, log: Callable[..., None]) -> None:
        self._log = log
        self._texts = OncePerText()

    def __call__(self, text: str, *args: Any, **named: Any) -> None:
        """Call the function with a text and further arguments, unless it was called with the text before."""
        if self._texts.is_new(text):
            self._log(text, *args, **named)


def stage_log() -> LogOnce:
    """Create a `Context.log`."""
    return LogOnce(logging.getLogger(STAGES).info)


def with_context(record: logging.LogRecord) -> logging.LogRecord:
    """Set `source`, `stage` and `request_id` of a record that has none, on the thread that logs it."""
    for name, variable in _CONTEXT.items():
        if not getattr(record, name, ""):
            setattr(record, name, variable.get())
    return record


def portable(record: logging.LogRecord) -> tuple[str, int, str, dict[str, Any]]:
    """The arguments of a `worker_log` for a record, for another process."""
    fields = {name: getattr(record, name, "") for name in ("created", "process", "processName", *_CONTEXT)}
    fields["exc_text"] = _exception(record)
    return _text(record), record.levelno, record.name, {name: field for name, field in fields.items() if field}


def worker_log() -> Callable[..., None]:
    """Create a function that logs messages of worker processes here, each text once; see `portable`."""
    once = OncePerText()

    def log(text: str, level: int, name: str, fields: Mapping[str, Any] = MappingProxyType({})) -> None:
        logger = logging.getLogger(name)
        if once.is_new(text) and logger.isEnabledFor(level):
            attributes = {"name": name, "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
            logger.handle(logging.makeLogRecord({**attributes, **fields}))

    return log


def parse_levels(text: str) -> dict[str, int]:
    """The levels of loggers, from a text such as `warning,streamkit.emit=debug`; a level alone is that of streamkit.

    Raises:
        ValueError: a level is unknown.
    """
    levels: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, level = part.rpartition("=")
        if level.lower() not in _LEVELS:
            raise ValueError(f"a level is one of {', '.join(_LEVELS)}, alone or as LOGGER=LEVEL, got {part!r}")
        levels[name or ROOT] = _LEVELS[level.lower()]
    return levels


def logs_json() -> bool:
    """Whether messages are lines of JSON."""
    return os.environ.get(FORMAT_VARIABLE) == "json"


def inherited_levels() -> dict[str, int]:
    """The levels in the environment; none if they are invalid: the command that sets them reports that."""
    try:
        return parse_levels(os.environ.get(LEVEL_VARIABLE, ""))
    except ValueError:
        return {}


def set_levels(levels: Mapping[str, int]) -> None:
    """Set the levels of loggers."""
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def json_line(record: logging.LogRecord) -> str:
    """A record as one JSON object; fields without a value are omitted.

    Fields: `time` (RFC 3339, UTC), `level`, `logger`, `message`, `process` and `pid`; where known `source`, `stage`,
    `request_id` and `exception`.
    """
    fields = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": _text(record),
        "process": "main" if record.processName == "MainProcess" else record.processName,
        "pid": record.process,
        **{name: getattr(record, name, "") for name in _CONTEXT},
        "exception": _exception(record),
    }
    return json.dumps({name: value for name, value in fields.items() if value}, default=str)


def text_lines(record: logging.LogRecord) -> str:
    """A record as text for people: the message, the id of the HTTP request, and the traceback if it has one."""
    request_id = getattr(record, "request_id", "")
    exception = _exception(record)
    request = f" [request {request_id}]" if request_id else ""
    return as_message(f"{_text(record)}{request}" + (f"\n{exception}" if exception else ""))


def _text(record: logging.LogRecord) -> str:
    """The message; the package masks secrets where it makes one, libraries do not."""
    text = record.getMessage()
    return text if record.name.partition(".")[0] == ROOT else mask(text)


def _exception(record: logging.LogRecord) -> str:
    """The traceback, with secrets masked."""
    if record.exc_info and not record.exc_text:
        record.exc_text = mask(_formatter.formatException(record.exc_info))
    return record.exc_text or ""


def as_message(text: str) -> str:
    """Escape control characters, and indent continuation lines.

    A text can thus neither control the terminal nor imitate a second message.
    """
    return printable(text).replace("\n", "\n    ")


class CallbackHandler(logging.Handler):
    """Passes records, with the context of the thread that logs, to `receive`."""

    def __init__(self, receive: Callable[[logging.LogRecord], None]) -> None:
        super().__init__()
        self._receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record; called by `logging`."""
        try:
            self._receive(with_context(record))
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def messages_to(
    receive: Callable[[logging.LogRecord], None],
    levels: Mapping[str, int] = MappingProxyType({}),
    *,
    libraries: bool = False,
) -> Iterator[OncePerText]:
    """Pass messages of the package, and of its web server, to `receive` while the block runs, each text once.

    Other handlers, of the logger `streamkit` and above it, do not receive them meanwhile.

    Args:
        receive: called with each record, on the thread that logs.
        levels: levels of loggers; by default INFO for the package, and ERROR for the web server.
        libraries: also pass what libraries log, as the root logger lets it through.

    Yields:
        The filter that drops repeated texts.
    """
    handler = CallbackHandler(receive)
    once = OncePerText()
    root = logging.getLogger()
    handler.addFilter(once)
    chosen = {**_DEFAULT_LEVELS, **levels}
    before = {logging.getLogger(name): logging.getLogger(name).level for name in chosen}
    shown = [
        (logger_of, logger_of.handlers, logger_of.propagate) for logger_of in map(logging.getLogger, _DEFAULT_LEVELS)
    ]
    for logger, _, _ in shown:
        logger.handlers = [handler]
        logger.propagate = False
    set_levels(chosen)
    if libraries:
        root.addHandler(handler)
    try:
        yield once
    finally:
        root.removeHandler(handler)
        for logger, handlers, propagate in shown:
            logger.handlers = handlers
            logger.propagate = propagate
        for logger, level in before.items():
            logger.setLevel(level)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that was logged.

    Attributes:
        number: increases with each message.
        time_s: when it was logged, in seconds since 1970.
        level: `info`, `warning`, `error` or `critical`.
        place: the module that logged it, such as `runtime.ingest.reconnect`.
        text: its text, with secrets masked.
        request_id: the id of the HTTP request that was being served; empty if none was.
    """

    number: int
    time_s: float
    level: str
    place: str
    text: str
    request_id: str = ""


class MessageStore(logging.Handler):
    """Keeps the latest messages of the package in memory, from level INFO.

    Args:
        keep: maximum number of messages.
    """

    def __init__(self, keep: int = MAX_MESSAGES) -> None:
        super().__init__(logging.INFO)
        self._messages: deque[StoredMessage] = deque(maxlen=keep)
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """Keep what is logged while the block runs, beside what other handlers do with it.

        A level that is set for the logger `streamkit` holds here, too.
        """
        logger = logging.getLogger(ROOT)
        level = logger.level
        logger.addHandler(self)
        if level == logging.NOTSET and logger.getEffectiveLevel() > logging.INFO:
            logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; called by `logging`, one record at a time."""
        try:
            text = mask(self.format(record))
            place = record.name.removeprefix(f"{ROOT}.")
            number = next(self._numbers)
            level = record.levelname.lower()
            request_id = with_context(record).request_id  # type: ignore[attr-defined]
            self._messages.append(StoredMessage(number, record.created, level, place, text, request_id))
        except Exception:
            self.handleError(record)

    def messages(self, after: int = 0, level: int = logging.INFO) -> list[StoredMessage]:
        """The messages with a number above `after`, of at least this level of `logging`; the oldest first."""
        while True:
            try:
                stored = list(self._messages)
                break
            except RuntimeError:  # a message was logged meanwhile
                continue
        level_numbers = logging.getLevelNamesMapping()
        return [
            message
            for message in stored
            if message.number > after and level_numbers.get(message.level.upper(), level) >= level
        ]


def command_record(text: str, level: int = logging.INFO, error: BaseException | None = None) -> logging.LogRecord:
    """A message of the command itself, with the traceback of an error."""
    raised = None if error is None else (type(error), error, error.__traceback__)
    return logging.getLogger("streamkit.cli").makeRecord("streamkit.cli", level, "", 0, text, (), raised)
