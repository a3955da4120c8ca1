"""The messages that streamkit logs during a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from streamkit.core.logs import ROOT


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


_collectors: list[_Collector] = []


def collect() -> list[str]:
    """Return a list that receives the text of each message from now to the end of the test."""
    collector = _Collector()
    _collectors.append(collector)
    logging.getLogger(ROOT).addHandler(collector)
    return collector.texts


@contextmanager
def collecting() -> Iterator[list[str]]:
    """Yield a list that receives the text of each message while the block runs."""
    collector = _Collector()
    logging.getLogger(ROOT).addHandler(collector)
    try:
        yield collector.texts
    finally:
        logging.getLogger(ROOT).removeHandler(collector)


def stop_collecting() -> None:
    """End all lists of the test."""
    while _collectors:
        logging.getLogger(ROOT).removeHandler(_collectors.pop())
