"""The network to measure with: YOLOX-nano of the data folder, in f16 or f32, or the user's model card."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Literal

from streamkit.bench.cpu import CARDS
from streamkit.core.errors import ConfigError

NAME = "yolox-nano"


def network(model: str | None, data: Path | None, folder: Path, dtype: Literal["f16", "f32"]) -> tuple[str, str]:
    """The name or path of a card, and its description.

    Args:
        model: a card; None for the data folder's YOLOX-nano.
        data: the folder with `models/`.
        folder: where to write the card and the converted network.
        dtype: dtype of the weights; a user's card is not converted.

    Raises:
        ConfigError: there is neither a card nor a data folder, or a package for f16 is missing.
    """
    if model is not None:
        path = Path(model)
        return (str(path.resolve()) if path.is_file() else model), model
    if data is None:
        raise ConfigError("bench gpu needs a network: name a card with --model, or the data folder with --data")
    text = CARDS[NAME].replace("FOLDER", str((data / "models").resolve()))
    if dtype == "f16":
        given = data / "models" / "yolox_nano_dyn.onnx"
        half(given, folder / "yolox_nano_f16.onnx")
        text = text.replace(str(given.resolve()), str(folder / "yolox_nano_f16.onnx"))
    card = folder / f"{NAME}-{dtype}.yaml"
    card.write_text(text, encoding="utf-8")
    return str(card), f"{NAME} in {dtype}"


def half(given: Path, out: Path) -> None:
    """Write a network with f16 weights, inputs and outputs.

    Raises:
        ConfigError: onnxconverter-common or onnx is not installed.
    """
    try:
        import onnx
        from onnxconverter_common.float16 import convert_float_to_float16  # type: ignore[import-untyped,import-not-found]
    except ImportError as error:
        raise ConfigError(
            f"bench gpu converts YOLOX-nano to f16, and the package {error.name} is missing: pip install onnx "
            "onnxconverter-common; or --dtype f32, or --model CARD with a network of your own"
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it tells of each weight so small that f16 rounds it
        made = convert_float_to_float16(onnx.load(given))
    onnx.save(made, out)
