"""The option type `Model`: the YAML names a model card, the stage gets the loaded card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from streamkit.core.errors import ConfigError
from streamkit.models.card import Card, find_card, load_card


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
        return {"type": "string", "description": "a model card: a name, or a path to a card's YAML file"}

    def _load(self, value: Any, info: Any) -> Any:
        if isinstance(value, Card):
            return value
        if not isinstance(value, str):
            raise ValueError(f"must be the name of a model card, got {value!r}")
        try:
            context = info.context or {}
            return load_card(find_card(value, context.get("folder", Path())), context.get("families"))
        except ConfigError as error:
            raise CardProblems(error.problems) from error


Model = Annotated[Any, _CardReference()]
"""A model card; a YAML names it, a stage gets the loaded `streamkit.models.card.Card`."""
