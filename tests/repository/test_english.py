"""The repository uses the standard words of its field; the phrases below read like a translation."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PHRASES = {
    r"and that is said": "a warning is logged",
    r"hands? on what": "passes on, outputs",
    r"takes? what the one above": "consumes the previous stage's output",
    r"\b(is|are|was|were) told\b": "is logged, is reported",
    r"\banew\b": "again, re-",
    r"\bnobody\b": "no viewer, no reader, unused",
    r"connected to again": "reconnects",
    r"what it gives back": "its return value",
    r"is as a full": "is treated as a full",
    r"makes no rule true": "never satisfies a rule",
    r"\bfor ever\b": "indefinitely",
    r"\bsomebody\b": "a client, another process",
    r"interpreter's lock": "GIL",
    r"stays? as (it|they) (is|are)": "is not changed",
}
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".js", ".html", ".css", ".cu", ".toml"}


def offenders(texts: dict[str, str]) -> list[str]:
    """Each place of a phrase with what to write instead."""
    sentences = []
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            sentences += [
                f"{name}:{number}: {phrase!r}: write {way!r}"
                for phrase, way in PHRASES.items()
                if re.search(phrase, line, re.IGNORECASE)
            ]
    return sentences


def texts() -> dict[str, str]:
    """The product's code and documents; tests name what they check in words of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [ROOT / name for name in listed if not name.startswith("tests/")]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if path.suffix in SUFFIXES and path.is_file()
    }


def test_no_phrase_reads_like_a_translation():
    assert offenders(texts()) == []


@pytest.mark.parametrize(
    "line", ["copied over, and that is said", "The user is told.", "It begins anew.", "Nobody waits."]
)
def test_a_phrase_is_found(line):
    assert len(offenders({"a.md": line})) == 1
