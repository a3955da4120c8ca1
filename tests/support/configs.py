"""Reads pipelines given as text in the checkout, and lists their problems."""

from pathlib import Path

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SMALL = "sources: {a: samples/street.mp4}\nstages:\n  detect: {model: demo}\n  jsonl: {path: out/a.jsonl}\n"


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch):
    monkeypatch.chdir(ROOT)


def config(text, folder=ROOT):
    return read_text(text, folder=folder)


def problems(text, folder=ROOT):
    """Return every problem of the file and its graph, without the file name."""
    pipeline = config(text, folder)
    try:
        build(pipeline)
    except ConfigError as error:
        return [str(problem).removeprefix("pipeline.yaml:") for problem in error.problems]
    return []


def with_stages(*lines):
    return "sources: {a: samples/street.mp4}\nstages:\n" + "".join(f"  {line}\n" for line in lines)
