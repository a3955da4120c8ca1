# SPDX-License-Identifier: Apache-2.0
"""What a GPU needs to compute networks fast, and what is on disk about it: choices, plans, networks, speeds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamkit.core.text import install_command
from streamkit.core.user_cache import user_cache
from streamkit.doctor.machine import Finding, driver, installed
from streamkit.media.gpu_figures import GUESS_SOURCE, MEANINGS, describe_figure, figure_file, read_figures
from streamkit.models.arithmetic_choice import read_choice
from streamkit.models.versions import decoding_versions

_TOPIC = "networks"
_ENGINE_PACKAGES = ("nvidia-cudnn-frontend", "onnx")
_PACKAGES = ("nvidia-cudnn-cu13", *_ENGINE_PACKAGES)
_FOLDERS = (("plans", "*/*.plan", "plan"), ("networks", "*.onnx", "converted network"))


def network_packages() -> Iterator[Finding]:
    """Report the packages of the fused engine; on a machine with a driver, warn if one is missing."""
    versions = {name: version for name in _PACKAGES if (version := installed(name)) is not None}
    missing = [name for name in _ENGINE_PACKAGES if name not in versions]
    if versions:
        yield Finding("ok", _TOPIC, ", ".join(f"{name} {version}" for name, version in versions.items()))
    if missing and driver()[0] is not None:
        verb = "are" if len(missing) > 1 else "is"
        text = f"all run in ONNX Runtime, which is slower: {' and '.join(missing)} {verb} not installed"
        yield Finding("warn", _TOPIC, text, install_command("gpu"))


def network_caches() -> Iterator[Finding]:
    """Report each choice of an arithmetic that is on disk, and how much else there is."""
    folder = user_cache("arithmetic")
    choices = [(file, choice) for file in _files(folder, "*.json") if (choice := read_choice(file)) is not None]
    for file, choice in choices:
        name = file.stem.rpartition("-")[0]
        yield Finding("ok", _TOPIC, f"{name} runs in {choice.arithmetic}: {choice.reason} ({file})")
    if not choices and driver()[0] is not None:
        yield Finding("none", _TOPIC, f"no arithmetic was chosen yet for a GPU ({folder})")
    for part, pattern, kind in _FOLDERS:
        files = _files(user_cache(part), pattern)
        if files:
            size_mb = sum(file.stat().st_size for file in files) / 1e6
            plural = "s" * (len(files) > 1)
            yield Finding("ok", _TOPIC, f"{len(files)} {kind}{plural}, {size_mb:.1f} MB in {user_cache(part)}")


def gpu_figures() -> Iterator[Finding]:
    """Report, for each GPU, what the number of processes follows from, and where it comes from."""
    index = 0
    while gpu := decoding_versions(index):
        yield from figures_of_gpu(gpu)
        index += 1


def figures_of_gpu(gpu: str) -> Iterator[Finding]:
    """Report each figure that was measured on a GPU, and the first guesses in one line.

    Args:
        gpu: the GPU and its versions, see `decoding_versions`.
    """
    figures = read_figures(gpu)
    for name, figure in figures.items():
        if figure.measured_on:
            text = describe_figure(name, figure)
            yield Finding("ok", "processes", f"{text} ({figure_file(gpu, name)})")
    guesses = [f"{figure.amount:g} {MEANINGS[name]}" for name, figure in figures.items() if not figure.measured_on]
    yield Finding("ok", "processes", f"first guesses, of an {GUESS_SOURCE}: {', '.join(guesses)}")


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))
