# SPDX-License-Identifier: Apache-2.0
"""The option type `Model`: the YAML names a model card or an ONNX file, the stage gets the loaded card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from streamkit.core.errors import ConfigError, Problem
from streamkit.models.card import DEFAULT_CARD, Card
from streamkit.models.derive import open_model


class CardProblems(ValueError):
    """An invalid model card; `problems` have positions of their own, in the card."""

    def __init__(self, problems: list[Any]) -> None:
        self.problems = problems
        super().__init__("; ".join(str(p) for p in problems))


class _CardReference:
    """Annotation of an option that names a model card; validation loads it."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(self._load)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        about = (
            "a model card: a name, or a path to a card's YAML file; or a path to an .onnx file; `auto` is "
            f"{DEFAULT_CARD}, which is downloaded once"
        )
        return {"type": "string", "description": about}

    def _load(self, value: Any, info: Any) -> Any:
        if isinstance(value, Card):
            return value
        if not isinstance(value, str):
            raise ValueError(f"must be the name of a model card, or the path of an .onnx file, got {value!r}")
        try:
            context = info.context or {}
            return open_model(value, context.get("folder", Path()), context.get("families"))
        except ConfigError as error:
            placed = [p if p.line or not p.file else Problem("", 0, 0, str(p)) for p in error.problems]
            raise CardProblems(placed) from error


Model = Annotated[Any, _CardReference()]
"""A model card; a YAML names it or its ONNX file, a stage gets the loaded `streamkit.models.card.Card`."""
