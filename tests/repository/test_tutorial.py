"""docs/models.md: the commands of its four steps run; families read the outputs that the reference of cards lists."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.clips import start_of

from streamkit.models.card import load_card
from streamkit.models.derive import derive
from streamkit.models.families import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "models.md").read_text()
STEPS = PAGE.partition("## What is derived")[0]


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("streamkit ")]
    return [shlex.split(line)[1:] for line in lines]


@pytest.fixture
def best(request, tmp_path, root):
    """The folder of a reader with a network, YOLOv8n of the test data or the one that ships, and a part of the video.

    YOLOv8n sees 4 frames, for its speed; the other one those up to a crossing.
    """
    if request.param == "yolov8n":
        data = request.getfixturevalue("test_data")
        shutil.copy(data / "models" / "yolov8n_640_deq_dyn.onnx", tmp_path / "best.onnx")
    else:
        shutil.copy(root / "models" / "demo.onnx", tmp_path / "best.onnx")
        (tmp_path / "labels.txt").write_text("car\nperson\nbike\n")
    (tmp_path / "samples").mkdir()
    few = request.param == "yolov8n"
    start_of(root / "samples" / "street.mp4", tmp_path / "samples" / "street.mp4", 4 if few else 190)
    return tmp_path


@pytest.mark.parametrize("best", ["demo", pytest.param("yolov8n", marks=pytest.mark.long)], indirect=True)
def test_the_commands_of_the_tutorial_run(best, here):
    (text,) = re.findall(r"Save this as `count.yaml`:\n\n```yaml\n(.*?)```", STEPS, re.DOTALL)
    (best / "count.yaml").write_text(text)
    steps = commands(STEPS)
    assert [step[0] for step in steps] == ["models", "check", "count.yaml", "models"]
    outputs = []
    for step in steps:
        completed = here(*step, cwd=best)
        assert completed.returncode == 0, completed.stderr
        outputs.append(completed.stdout + completed.stderr)
    assert re.search(r"^passed\ndrawn     out.png: frame \d+ of (4|16), .*person", outputs[0], re.MULTILINE)
    assert "hint" not in outputs[0]
    records = [json.loads(line) for line in (best / "out" / "street.jsonl").read_text().splitlines()]
    assert any(detected["label"] == "person" for record in records for detected in record["objects"])
    if len(records) > 10:
        events = [event for record in records for event in record["events"]]
        assert [(event["kind"], event["data"]["label"]) for event in events] == [("crossed", "person")]
        assert "door in: person 1" in outputs[2]
    assert (best / "out" / "street.mp4").stat().st_size > 10_000
    assert load_card(best / "best.yaml").labels == derive(best / "best.onnx").card().labels


def test_the_card_on_the_page_is_what_the_command_writes(test_data, tmp_path):
    shutil.copy(test_data / "models" / "yolov8n_640_deq_dyn.onnx", tmp_path / "best.onnx")
    assert f"```yaml\n{derive(tmp_path / 'best.onnx').text(tmp_path)}```" in PAGE


SIZES = {"N": "N", "A": 84, "Q": 60, "K": 50, "P": 17, "M": 32, "D": 128, "T": 26, "h": 40, "w": 44}


def shapes(outputs: str, classes: int) -> dict[str, list[object]]:
    """The outputs of a row by name, with their shapes."""
    output_shapes: dict[str, list[object]] = {}
    for name, text in re.findall(r"(?:(\w+)`? )?\(([^()]*)\)", outputs):
        sides = [re.sub(r"(\d) ([A-Z])", r"\1 * \2", side) for side in text.split(", ")]
        shape = [eval(side, {**SIZES, "C": classes}) for side in sides]
        strides = (8, 16, 32) if name.endswith("_S") else (None,)
        output_shapes |= {name if stride is None else f"{name[:-1]}{stride}": list(shape) for stride in strides}
    return output_shapes


@pytest.mark.parametrize(
    ("name", "outputs"),
    [
        (name, output)
        for name, family in FAMILIES.items()
        for form in family.traits.formats
        for output in form.outputs.split(" or ")
    ],
)
def test_a_family_reads_the_outputs_of_the_reference(name, outputs):
    family = FAMILIES[name]
    classes = 1 if family.label else len(family.numbers) or 3
    family.check(shapes(outputs, classes), classes)
    fixed = [re.findall(r"[^,()]+", text) for text in re.findall(r"\(([^()]*)\)", outputs)]
    for output, sides in enumerate(fixed):
        for axis, side in enumerate(sides):
            if re.search(r"\d|C", side):
                changed = shapes(outputs, classes)
                changed[list(changed)[output * len(changed) // len(fixed)]][axis] += 1
                with pytest.raises(ValueError, match=f"family {name}"):
                    family.check(changed, classes)
