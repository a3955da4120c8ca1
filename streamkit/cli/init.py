# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit init`: writes a pipeline to start from."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from streamkit.cli.common import echo
from streamkit.cli.starter import TEMPLATES, summary_of, template_text, write_starter
from streamkit.core.errors import ConfigError


@click.command()
@click.argument("template", required=False)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--force", is_flag=True, help="replace an existing pipeline.yaml")
def init(template: str | None, folder: Path, force: bool) -> int:
    """Write a pipeline to start from.

    TEMPLATE is detect, count, cameras or archive; without it, the templates are listed. FOLDER gets pipeline.yaml and
    a video to try it on; by default it is the current folder.
    """
    if template is None:
        for name in TEMPLATES:
            echo(f"{name:8}  {summary_of(name)}")
        echo("Write one with: streamkit init TEMPLATE [FOLDER]")
        return 0
    text = template_text(template)
    existing = folder / "pipeline.yaml"
    if existing.exists() and not force:
        raise ConfigError(f"{existing} exists; name another folder, or replace it with --force")
    pipeline, video = write_starter(folder, text)
    echo(f"{pipeline}: {summary_of(template)}")
    echo(f"{video}: a video to try it on")
    for problem in _missing_packages(pipeline):
        echo(problem)
    echo(f"Next: streamkit run {shlex.quote(str(pipeline))}")
    return 0


def _missing_packages(pipeline: Path) -> list[str]:
    """Return each package that the pipeline needs and that is not installed, with the command that installs it."""
    from streamkit.config.checks.stages import check_packages
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read

    try:
        check_packages(build(read(pipeline, set_={"stages.detect.model": "demo"})))  # a network that is there
    except ConfigError as error:
        return list(map(str, error.problems))
    return []
