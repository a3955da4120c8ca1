"""Words that messages to the user have in common."""

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
"""Both, before one of them is installed again: each removes files of the other."""

# what a terminal obeys rather than shows: C0 but for tab and newline, DEL and C1; marks of direction, by which text is
# shown in another order than it has; further ends of lines; and half characters, which cannot be printed at all
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_BREAKS = re.compile("[\t\n]")


def printable(text: str, *, one_line: bool = False) -> str:
    """Text that a terminal or log shows and does not obey: control and bidi characters become escapes such as `\\x1b`.

    Labels, file names, URIs and what servers answer come from outside, and messages hold them.

    Args:
        text: what is to be shown.
        one_line: whether newlines and tabs become escapes as well, as in a name.
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
"""Options by their former names, which are too far from the present ones for `did_you_mean`."""


def renamed(word: str, known: Iterable[str]) -> str:
    """`; it is now 'x'` where `word` is the former name of one of the known options, else nothing."""
    known = list(known)
    return next((f"; it is now {name!r}" for name in _RENAMED.get(word, ()) if name in known), "")


def did_you_mean(word: str, known: Iterable[str], all_if_few: bool = False) -> str:
    """`; did you mean 'x'?` where a known word is near, else the known words if asked for, else nothing."""
    known = list(known)
    near = nearest(word, known)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(known)}" if all_if_few and known else ""


def nearest(word: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known word that `word` is nearly, or None; `likeness` is the ratio of `difflib`, 0 to 1."""
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
    """The commands that put the GPU's packages in the place of the CPU's."""
    return f"{UNINSTALL} && {install_command('gpu')}"


def at_now() -> str:
    """The date and time of day, which makes a repeated event a new message: equal messages are logged once."""
    return time.strftime("at %Y-%m-%d %H:%M:%S")
