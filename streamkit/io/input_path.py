# SPDX-License-Identifier: Apache-2.0
"""The option type `InputPath`: a file that a stage reads, which the YAML may name relative to its own folder."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Annotated, Any


class _InputPath:
    """Annotation of an option that names a file to read; validation looks it up."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_after_validator_function(self._resolve, handler(source))

    def _resolve(self, value: str, info: Any) -> str:
        beside = (info.context or {}).get("folder", Path()) / value
        parts = map(glob.escape, str(beside).split("{source}"))
        return str(beside) if any(True for _ in glob.iglob("*".join(parts))) else value


InputPath = Annotated[str, _InputPath()]
"""A file: next to the YAML if it is there, else relative to the working directory. It may contain `{source}`."""
