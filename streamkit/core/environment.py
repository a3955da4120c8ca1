# SPDX-License-Identifier: Apache-2.0
"""Environment variables whose value may be in a file, as Docker, Kubernetes and systemd pass secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FILE_SUFFIX = "_FILE"
"""`NAME_FILE` names the file that holds the value of `NAME`."""


def variable(name: str, environment: Mapping[str, str] | None = None) -> str | None:
    """Return `$NAME`, else the content of the file that `$NAME_FILE` names, else None.

    Line breaks at the end of the file are removed.

    Args:
        name: the variable.
        environment: the variables; by default those of the process.

    Raises:
        ValueError: the file cannot be read; names the file and the variable.
    """
    variables = os.environ if environment is None else environment
    value = variables.get(name)
    path = variables.get(name + FILE_SUFFIX)
    if value is not None or not path:
        return value
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    raise ValueError(f"cannot read {path}, which the environment variable {name}{FILE_SUFFIX} names: {reason}")
