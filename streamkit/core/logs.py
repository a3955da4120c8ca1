# SPDX-License-Identifier: Apache-2.0
"""Messages to the user: each module logs to `logging.getLogger(__name__)`, below the logger `streamkit`.

The commands show these messages with `messages_to`. A program that uses the package configures logging as usual.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from streamkit.core.masking import mask
from streamkit.core.text import printable

ROOT = "streamkit"
"""The logger above all loggers of the package."""
STAGES = "streamkit.stages"
"""The logger of `Context.log`."""

KEPT = 2000
"""Number of messages that a `MessageStore` keeps."""

_REMEMBERED = 1000


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
        mine = object()
        if self._texts.setdefault(text, mine) is not mine:
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
        self._log, self._texts = log, OncePerText()

    def __call__(self, text: str, *args: Any) -> None:
        """Call the function with a text and further arguments, unless it was called with the text before."""
        if self._texts.is_new(text):
            self._log(text, *args)


def stage_log() -> LogOnce:
    """Create a `Context.log`."""
    return LogOnce(logging.getLogger(STAGES).info)


def worker_log() -> LogOnce:
    """Create a function that logs messages of worker processes here: their text, level and logger's name."""
    return LogOnce(lambda text, level, name: logging.getLogger(name).log(level, text))


def as_message(text: str) -> str:
    """Escape control characters, and indent continuation lines.

    A text can thus neither control the terminal nor imitate a second message.
    """
    return printable(text).replace("\n", "\n    ")


class _CallbackHandler(logging.Handler):
    def __init__(self, receive: Callable[[str, int, str], None]) -> None:
        super().__init__()
        self._receive = receive

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._receive(self.format(record), record.levelno, record.name)
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def messages_to(receive: Callable[[str, int, str], None]) -> Iterator[OncePerText]:
    """Pass messages of the package from level INFO on to `receive` while the block runs, each text once.

    Other handlers, of the logger `streamkit` and above it, do not receive them meanwhile.

    Args:
        receive: called with the text, the level and the logger's name, on the thread that logs.

    Yields:
        The filter that drops repeated texts.
    """
    logger, handler, once = logging.getLogger(ROOT), _CallbackHandler(receive), OncePerText()
    handler.addFilter(once)
    handlers, propagate, level = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield once
    finally:
        logger.handlers, logger.propagate = handlers, propagate
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
    """

    number: int
    time_s: float
    level: str
    place: str
    text: str


class MessageStore(logging.Handler):
    """Keeps the latest messages of the package in memory, from level INFO.

    Args:
        keep: maximum number of messages.
    """

    def __init__(self, keep: int = KEPT) -> None:
        super().__init__(logging.INFO)
        self._messages: deque[StoredMessage] = deque(maxlen=keep)
        self._numbers = itertools.count(1)

    @contextlib.contextmanager
    def receiving(self) -> Iterator[None]:
        """Keep what is logged while the block runs, beside what other handlers do with it."""
        logger = logging.getLogger(ROOT)
        level = logger.level
        logger.addHandler(self)
        if logger.getEffectiveLevel() > logging.INFO:
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
            self._messages.append(StoredMessage(number, record.created, record.levelname.lower(), place, text))
        except Exception:
            self.handleError(record)

    def messages(self, after: int = 0, level: int = logging.INFO) -> list[StoredMessage]:
        """The messages with a number above `after`, of at least this level of `logging`; the oldest first."""
        while True:
            try:
                found = list(self._messages)
                break
            except RuntimeError:  # a message was logged meanwhile
                continue
        known = logging.getLevelNamesMapping()
        return [one for one in found if one.number > after and known.get(one.level.upper(), level) >= level]
