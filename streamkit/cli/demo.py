# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit demo`: runs the included pipeline on the included video, or finds objects in another."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path

import click

from streamkit.cli.common import DEVICE, echo
from streamkit.cli.direct import detect
from streamkit.cli.run import run
from streamkit.cli.starter import demo_text, write_starter
from streamkit.core.errors import ConfigError

_MARKER = ".streamkit-demo"
"""A file of the demo's folder with the checksum of the pipeline that the demo wrote there."""

_ANOTHER = "name another folder: streamkit demo FOLDER"


@click.command()
@click.argument("place", metavar="[FOLDER|VIDEO]", type=click.Path(path_type=Path), default=Path("streamkit-demo"))
@DEVICE
@click.pass_context
def demo(context: click.Context, place: Path, device: str | None) -> int:
    """Run the included pipeline on the included video; or find objects in a video of yours.

    FOLDER gets the pipeline and its outputs; by default it is streamkit-demo. A folder that the demo did not make, or
    whose pipeline was edited, is not changed. With a VIDEO, this is `streamkit detect VIDEO`.
    """
    from streamkit.media.source_resolver import VIDEOS
    from streamkit.models.onnxruntime_package import need_onnxruntime

    need_onnxruntime()
    if place.is_file() or place.suffix.lower() in VIDEOS:
        return int(context.invoke(detect, sources=(str(place),), device=device))
    folder = place
    text = demo_text()
    claim(folder, text)
    pipeline, video = write_starter(folder, text)
    echo(f"Running {pipeline}: it detects cars, people and bikes in 16 s of a drawn street,")
    echo("draws boxes around them, and writes a record per frame.")
    paths = {
        "sources.street": video,  # also where the working folder has a file of that name
        "stages.video.path": folder / "out" / "{source}.mp4",
        "stages.jsonl.path": folder / "out" / "{source}.jsonl",
    }
    set_ = tuple(f"{name}={path}" for name, path in paths.items())
    code = int(context.invoke(run, pipeline=pipeline, set_=set_, device=device))
    if code == 0:
        echo(f"{folder}/out/street.mp4 shows the objects, {folder}/out/street.jsonl has the records.")
        echo("Next: find objects in a video of yours: streamkit detect my.mp4")
        echo(f"      edit {pipeline} and run it with: streamkit run {shlex.quote(str(pipeline))}")
        echo("      or write a pipeline of your own: streamkit init")
    return code


def claim(folder: Path, text: str) -> None:
    """Mark a folder as the demo's.

    Args:
        folder: the folder, which need not exist.
        text: the pipeline that the demo will write there.

    Raises:
        ConfigError: the folder has other files, or its pipeline was edited.
        OutputError: it cannot be read or written.
    """
    from streamkit.io.outputs import AtomicFile, writing

    if set(str(folder)) & set("{}"):
        raise ConfigError(f"the folder's name must be without {{ and }}, got {folder}; {_ANOTHER}")
    marker = folder / _MARKER
    pipeline = folder / "pipeline.yaml"
    checksum = _checksum(text.encode())
    with writing(folder):
        if not marker.is_file() and folder.is_dir() and any(folder.iterdir()):
            raise ConfigError(f"{folder} has files that the demo did not make; {_ANOTHER}")
        if marker.is_file() and pipeline.is_file():
            unedited = (checksum, marker.read_text(encoding="utf-8").strip())
            if _checksum(pipeline.read_bytes()) not in unedited:
                again = f"streamkit run {shlex.quote(str(pipeline))}"
                raise ConfigError(f"{pipeline} was edited; run it with: {again}; or {_ANOTHER}")
    AtomicFile(marker).write(f"{checksum}\n".encode())


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
