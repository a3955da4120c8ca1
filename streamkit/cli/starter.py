# SPDX-License-Identifier: Apache-2.0
"""Pipelines to start from: `init` writes one of the templates, `demo` has one of its own."""

from __future__ import annotations

from pathlib import Path

from streamkit.core.errors import ConfigError, OutputError
from streamkit.core.text import did_you_mean, restore_command

TEMPLATES = ("detect", "count", "cameras", "archive")
"""Names of the templates, in the order in which they are listed."""
SAMPLE = Path("samples", "street.mp4")
"""The video that the templates name, from the pipeline's folder."""


def template_text(name: str) -> str:
    """Return the YAML of a template. Raises ConfigError if there is none of that name."""
    if name not in TEMPLATES:
        raise ConfigError(f"there is no template {name!r}{did_you_mean(name, TEMPLATES, all_if_few=True)}")
    return _read(name)


def demo_text() -> str:
    """Return the YAML of the demo."""
    return _read("demo")


def _read(name: str) -> str:
    return (Path(__file__).parent / "templates" / f"{name}.yaml").read_text(encoding="utf-8")


def summary_of(name: str) -> str:
    """Return what a template's pipeline does, its first line."""
    return template_text(name).partition("\n")[0].removeprefix("# ").rstrip(".")


def write_starter(folder: Path, text: str) -> tuple[Path, Path]:
    """Write a template into a folder, as `pipeline.yaml`, and the sample video unless a file has its name.

    Returns:
        The pipeline and the video.

    Raises:
        OutputError: a file cannot be written, or the sample video is missing from the installation.
    """
    from streamkit.io.outputs import AtomicFile, writing

    pipeline = folder / "pipeline.yaml"
    video = folder / SAMPLE
    with writing(video):
        if not video.exists():
            AtomicFile(video).write(_sample())
    AtomicFile(pipeline).write(text.encode())
    return pipeline, video


def _sample() -> bytes:
    from streamkit.models.card import sample_video

    shipped = sample_video()
    if not shipped.is_file():
        raise OutputError(f"there is no file {shipped}; restore it with: {restore_command()}")
    return shipped.read_bytes()
