# SPDX-License-Identifier: Apache-2.0
"""The YAML of a pipeline for sources on a command line, such as `streamkit detect my.mp4`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from streamkit.media.uris import scheme

_HOST = re.compile(r"://(?:[^/?#@]*@)?\[?([^/?#:\]]+)")


def pipeline_text(about: str, addresses: Sequence[str], stages: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a YAML.

    Args:
        about: its first line.
        addresses: of the sources: files, folders, patterns, URLs, or numbers of webcams.
        stages: the options of each stage, by id.
    """
    lines = [f"# {about}", "sources:"]
    lines += [f"  {id_}: {_flow(address)}" for id_, address in sources_of(addresses).items()]
    lines += ["stages:", *(f"  {id_}: {_flow(options)}" for id_, options in stages.items())]
    return "\n".join(lines) + "\n"


def sources_of(addresses: Sequence[str]) -> dict[str, str]:
    """Return the address of each source by an id that is made from it; webcam 0 is `/dev/video0`."""
    sources: dict[str, str] = {}
    for address in addresses:
        webcam = re.fullmatch(r"\d{1,3}", address) and not Path(address).exists()
        name = f"webcam{address}" if webcam else _name(address)
        id_ = name
        number = 1
        while id_ in sources:
            number += 1
            id_ = f"{name}-{number}"
        sources[id_] = f"/dev/video{address}" if webcam else address
    return sources


def _name(address: str) -> str:
    """Return an id for an address: a file's name, a folder's name, or a host."""
    if scheme(address):
        host = _HOST.search(address)
        text = scheme(address) if host is None else host[1]
    else:
        path = Path(address)
        text = path.resolve().name if path.is_dir() else path.stem
        text = (path.parent.name or "files") if re.search(r"[*?[]", text) else text
    return re.sub(r"[^\w.-]", "_", text, flags=re.ASCII).lstrip(".-") or "source"


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False, allow_unicode=True)
    return text.strip().removesuffix("...").strip()
