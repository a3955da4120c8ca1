"""Decisions for f32 for the networks that tests run on a GPU, so that they compare with the CPU."""

from pathlib import Path

from streamkit.core.data import Device
from streamkit.core.errors import StreamkitError
from streamkit.models.arithmetic import F32, candidates
from streamkit.models.arithmetic_choice import ArithmeticChoice, choice_file, write_choice
from streamkit.models.card import load_card
from streamkit.models.network_file import inspect
from streamkit.models.versions import gpu_versions


def write_f32_choices(root: Path, data: Path | None) -> None:
    """Decide for f32 for each network that ships or is among the test data, at its usual size."""
    gpu = gpu_versions(0)
    allowed = candidates("auto", "auto", Device("cuda"))
    choice = ArithmeticChoice(F32.engine, F32.precision, "tests compare with the CPU")
    for card_path in sorted((root / "models").glob("*.yaml")):
        try:
            card = load_card(card_path)
        except StreamkitError:
            continue
        files = [card.file, *(() if data is None else [data / "models" / card.file.name])]
        for file in files:
            if file.is_file():
                write_choice(choice_file(file, card.input.size, gpu, allowed), choice)
    for file in sorted((data / "models").glob("*.onnx")) if data is not None else ():
        for size in {inspect(file).size or (640, 640), (320, 320), (416, 416), (640, 640)}:
            write_choice(choice_file(file, size, gpu, allowed), choice)
