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
BRITISH = {
    r"colour": "color",
    r"behaviour": "behavior",
    r"neighbour": "neighbor",
    r"favour": "favor",
    r"honour": "honor",
    r"\bgrey(?!list)": "gray",
    r"cent(re|ring)": "center",
    r"(?<![a-z])(kilo|centi|milli)?metres?(?![a-z])": "meter",
    r"labell": "label",
    r"cancell(ed|ing)": "canceled",
    r"travell": "travel",
    r"modell": "model",
    r"signall": "signal",
    r"catalogue": "catalog",
    r"licence": "license",
    r"defence": "defense",
    r"learnt": "learned",
    r"analys(e|ed|ing)(?![a-z])": "analyze",
    r"(author|character|custom|final|general|initial|material|maxim|memor|minim|normal|optim|organ|prior|quant|random"
    r"|real|recogn|serial|special|stabil|standard|summar|synchron|token|util|vector|visual)"
    r"is(e|ed|es|er|ing|ation)(?![a-z])": "-ize",
}
FOREIGN = {
    "aria-labelledby": "an attribute of HTML",
    "ariaLabelledBy": "a property of the DOM",
    "colour_primaries": "an option of FFmpeg's bitstream filters",
    "Fit (grey edges) in": "a setting of Roboflow",
    "not authorised": "a message of Mosquitto",
    "--only-labelled": "an alias of `--only-labeled`, which scripts may use",
}
"""Names and texts of others, and options that stay accepted."""
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


def british_words(texts: dict[str, str]) -> list[str]:
    """Each place of a British spelling with the American one."""
    foreign = re.compile("|".join(map(re.escape, FOREIGN)))
    british = re.compile("|".join(BRITISH))
    places = []
    for name, text in texts.items():
        checked = foreign.sub("", text).lower()
        for match in british.finditer(checked):
            number = 1 + checked.count("\n", 0, match.start())
            american = next(word for spelling, word in BRITISH.items() if re.match(spelling, match[0]))
            places.append(f"{name}:{number}: {match[0]!r}: write {american!r}")
    return places


def texts(*excluded: str) -> dict[str, str]:
    """The text of each file of the repository whose path does not begin with one of `excluded`."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [ROOT / name for name in listed if not name.startswith(excluded)]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if path.suffix in SUFFIXES and path.is_file()
    }


def test_no_phrase_reads_like_a_translation():
    assert offenders(texts("tests/")) == []


def test_spelling_is_american():
    dated_reports = "docs/soaks/"
    assert british_words(texts(dated_reports, "tests/repository/test_english.py")) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("def neighbours_of(box):", "neighbour"),
        ("Colour = 1", "colour"),
        ("a grey image", "grey"),
        ("in the centre of 3", "centre"),
        ("3 metres wide", "metres"),
        ("normalised and synchronisation", "normalised"),
        ('aria-labelledby="title" of labelled boxes', "labell"),
    ],
)
def test_a_british_word_is_reported(line, word):
    assert f"a.md:1: {word!r}" in british_words({"a.md": line})[0]


@pytest.mark.parametrize(
    "line", ["parameters, diameter", "greylisted", "promise, revise", "--only-labelled", "analyses"]
)
def test_other_words_are_not_british(line):
    assert british_words({"a.md": line}) == []


@pytest.mark.parametrize(
    "line", ["copied over, and that is said", "The user is told.", "It begins anew.", "Nobody waits."]
)
def test_a_phrase_is_reported(line):
    assert len(offenders({"a.md": line})) == 1
