# SPDX-License-Identifier: Apache-2.0
"""Shared helpers for messages to the user."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

DISTRIBUTION = "streamkit-video"
"""The name of the distribution; `streamkit` on the package index is another project."""
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


def text_of(value: object) -> str:
    """The value as text; a note where its `__str__`, which may be a plugin's, raises."""
    try:
        return str(value)
    except Exception as error:
        return f"(no text: __str__ raises {type(error).__name__})"


_RENAMED = {
    "better": ("requery_ratio",),
    "forget": ("track_ttl", "decay"),
    "drain": ("drain_timeout",),
    "gather": ("batch_window",),
    "keep": ("retention",),
    "frozen": ("freeze_timeout",),
    "headed": ("changed",),
    "hold": ("debounce",),
    "jitter": ("jitter_buffer",),
    "limit": ("max_per_hour",),
    "mapped": ("saved",),
    "max_gap": ("track_ttl", "max_frame_gap"),
    "max_lost": ("track_ttl",),
    "max_pause": ("max_frame_gap",),
    "max_wait": ("max_backoff",),
    "min_point": ("min_keypoint_score",),
    "now": ("trigger",),
    "over": ("smoothing",),
    "phase": ("pace_seed",),
    "pictures": ("images", "max_images"),
    "plain": ("unencrypted",),
    "what": ("capture",),
    "whole": ("full_frame",),
    "within": ("after",),
    "clear": ("show_hidden",),
    "--again": ("--overwrite",),
    "--behind": ("--extra-stages",),
    "--most": ("--max-streams",),
}
"""New names of renamed options, stages, events and flags that are too different from the old ones to be found."""


def renamed(word: str, words: Iterable[str]) -> str:
    """`; it is now 'x'` if `word` is the former name of a known word, else an empty text."""
    words = list(words)
    names = [repr(name) for name in _RENAMED.get(word, ()) if name in words]
    return f"; it is now {' or '.join(names)}" if names else ""


def did_you_mean(word: str, words: Iterable[str], all_if_few: bool = False) -> str:
    """`; it is now 'x'` for a former name; `; did you mean 'x'?` if a known word is similar; else nothing.

    With `all_if_few`, the last case lists the known words.
    """
    words = list(words)
    if now := renamed(word, words):
        return now
    near = nearest(word, words)
    if near is not None:
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(words)}" if all_if_few and words else ""


def nearest(word: str, words: Iterable[str], likeness: float = 0.6) -> str | None:
    """The most similar known word, or None; `likeness` is the minimum ratio of `difflib`, 0 to 1."""
    return _nearest(word, tuple(words), likeness)


@functools.lru_cache(maxsize=256)  # the same mistake may stand under each of many sources
def _nearest(word: str, words: tuple[str, ...], likeness: float) -> str | None:
    near = difflib.get_close_matches(word, words, n=1, cutoff=likeness)
    return near[0] if near else None


def checkout() -> Path | None:
    """The checkout that this copy of streamkit runs from; None if it is installed from a wheel."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() else None


def install_command(extra: str = "") -> str:
    """The command that installs what this copy of streamkit needs, with an extra or several, as in `ray,serve`.

    In a checkout it installs the checkout. Elsewhere it names the packages, so that no index needs to have streamkit.
    """
    root = checkout()
    extras = f"[{extra}]" if extra else ""
    if root is None:
        packages = _requirements(extra) or [f"{_wheel_name()}{extras}"]
        return f"python -m pip install {' '.join(repr(package) for package in packages)}"
    try:
        where = "." if os.path.samefile(root, os.curdir) else str(root)
    except OSError:  # the working directory is gone
        where = str(root)
    return f"python -m pip install -e '{where}{extras}'"


def _requirements(extra: str) -> list[str]:
    """The packages that the installed distribution requires for an extra, or without one; empty if it is unknown."""
    from importlib import metadata

    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    extras = set(extra.split(","))
    packages = []
    for line in lines:
        package, _, marker = line.partition(";")
        of_extra = re.search(r"extra == ['\"]([\w.-]+)['\"]", marker)
        if (of_extra[1] if of_extra else "") in extras:
            packages.append(package.strip())
    return list(dict.fromkeys(packages))


def _wheel_name() -> str:
    from streamkit.core.version import __version__

    return f"{DISTRIBUTION.replace('-', '_')}-{__version__}-py3-none-any.whl"


def _origin() -> str:
    """The address or file that pip installed this copy from; the name of its wheel if it came from an index."""
    from importlib import metadata

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        return str(json.loads(text or "{}")["url"])
    except (metadata.PackageNotFoundError, KeyError, ValueError):
        return _wheel_name()


def restore_command() -> str:
    """The command that restores models and samples that ship with streamkit."""
    if checkout() is None:
        return f"python -m pip install --force-reinstall --no-deps {_origin()!r}"
    return "git checkout -- models samples"


def eval_command() -> str:
    """The commands that install what `streamkit eval` needs.

    TrackEval is installed without its dependencies: its opencv-python would overwrite the files of
    opencv-python-headless.
    """
    return f"{install_command('eval')} && python -m pip install --no-deps 'trackeval>=1.3,<2'"


def gpu_command() -> str:
    """The commands that replace the CPU packages by the GPU packages."""
    return f"{UNINSTALL} && {install_command('gpu')}"


def nothing_detected(detectors: Sequence[str], frames: int) -> str:
    """The hint after a run in which these detectors found no object in any frame; empty without a detector or frame."""
    if not detectors or not frames:
        return ""
    return (
        f"{' and '.join(detectors)} found no object in {frames:,} frames; if there are some, run the network on one "
        "image (streamkit models check CARD IMAGE), and see whether min_score and labels leave them out"
    )


def at_now() -> str:
    """The date and time. Equal messages are logged once; the time makes a repeated message a new one."""
    return time.strftime("at %Y-%m-%d %H:%M:%S")
