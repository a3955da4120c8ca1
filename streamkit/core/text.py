"""Shared helpers for messages to the user."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

DISTRIBUTION = "streamkit-video"
"""The name on the package index; `streamkit` there is another project."""
ONNXRUNTIMES = ("onnxruntime", "onnxruntime-gpu")
UNINSTALL = f"python -m pip uninstall -y {' '.join(ONNXRUNTIMES)}"
"""Uninstall both before installing one: each removes files of the other."""

# control characters: C0 without tab and newline, DEL and C1; bidirectional marks, which change the displayed order;
# further line separators; and surrogates, which cannot be printed
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS = re.compile("[\t\n]")


def printable(text: str, *, one_line: bool = False) -> str:
    """Escape control and bidirectional characters, as in `\\x1b`, so that text is safe in a terminal or log.

    Messages contain labels, file names, URIs and server responses, which are untrusted.

    Args:
        text: the text.
        one_line: whether to escape newlines and tabs too, as in names.
    """
    text = _OBEYED.sub(_escape, text)
    return _BREAKS.sub(_escape, text) if one_line else text


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


_RENAMED = {
    "better": ("requery_ratio",),
    "forget": ("track_ttl", "decay"),
    "drain": ("drain_timeout",),
    "gather": ("batch_window",),
    "keep": ("retention",),
    "--again": ("--overwrite",),
    "--behind": ("--extra-stages",),
    "--most": ("--max-streams",),
}
"""New names of renamed options that are too different for `did_you_mean`."""


def renamed(word: str, known: Iterable[str]) -> str:
    """`; it is now 'x'` if `word` is the former name of a known option, else an empty text."""
    known = list(known)
    return next((f"; it is now {name!r}" for name in _RENAMED.get(word, ()) if name in known), "")


def did_you_mean(word: str, known: Iterable[str], all_if_few: bool = False) -> str:
    """`; did you mean 'x'?` if a known word is similar, else the list of known words if `all_if_few`, else nothing."""
    known = list(known)
    near = nearest(word, known)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(known)}" if all_if_few and known else ""


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The most similar known word, or None; `likeness` is the minimum ratio of `difflib`, 0 to 1."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return near[0] if near else None


def install_command(extra: str = "") -> str:
    """The command that installs this copy of streamkit with an extra: from its checkout, or from the package index."""
    root, extras = Path(__file__).resolve().parents[2], f"[{extra}]" if extra else ""
    if not (root / "pyproject.toml").is_file():
        return f"python -m pip install '{DISTRIBUTION}{extras}'"
    try:
        where = "." if os.path.samefile(root, os.curdir) else str(root)
    except OSError:  # the working directory is gone
        where = str(root)
    return f"python -m pip install -e '{where}{extras}'"


def gpu_command() -> str:
    """The commands that replace the CPU packages by the GPU packages."""
    return f"{UNINSTALL} && {install_command('gpu')}"


def at_now() -> str:
    """The date and time. Equal messages are logged once; the time makes a repeated message a new one."""
    return time.strftime("at %Y-%m-%d %H:%M:%S")
