"""docs/tutorial-yolo.md: the commands run; docs/models-*.md: the references of cards and families are the code's."""

import dataclasses
import itertools
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Required, get_origin, get_type_hints

import av
import pytest

from streamkit.models.card import Card, load_card
from streamkit.models.card_keys import CardKeys, InputKeys
from streamkit.models.derive import derive
from streamkit.models.families import FAMILIES
from streamkit.ops.letterbox import InputSpec

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial-yolo.md").read_text()
CARDS = (ROOT / "docs" / "models-cards.md").read_text()
FAMILY_PAGE = (ROOT / "docs" / "models-families.md").read_text()


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("python run.py ")]
    return [shlex.split(line)[2:] for line in lines]


def table(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its first two rows."""
    part = page[page.index(f"\n{heading}\n") :]
    rows = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def start_of(video: Path, path: Path, frames: int) -> None:
    """Copy the first frames of a video, without encoding them again."""
    with av.open(str(video)) as source, av.open(str(path), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in itertools.islice(source.demux(video=0), frames):
            packet.stream = stream
            target.mux(packet)


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


@pytest.mark.parametrize("best", ["demo", "yolov8n"], indirect=True)
def test_the_commands_of_the_tutorial_run(best, here):
    (text,) = re.findall(r"Save this as `count.yaml`:\n\n```yaml\n(.*?)```", TUTORIAL, re.DOTALL)
    (best / "count.yaml").write_text(text)
    steps = commands(TUTORIAL)
    assert [step[0] for step in steps] == ["models", "check", "count.yaml", "models"]
    said = []
    for step in steps:
        done = here(*step, cwd=best)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
    assert re.search(r"^passed\ndrawn     out.png: frame \d+ of (4|16), .*person", said[0], re.MULTILINE)
    assert "hint" not in said[0]
    records = [json.loads(line) for line in (best / "out" / "street.jsonl").read_text().splitlines()]
    assert any(one["label"] == "person" for record in records for one in record["objects"])
    if len(records) > 10:
        events = [event for record in records for event in record["events"]]
        assert [(event["kind"], event["data"]["label"]) for event in events] == [("crossed", "person")]
        assert "door in: person 1" in said[2]
    assert (best / "out" / "street.mp4").stat().st_size > 10_000
    assert load_card(best / "best.yaml").labels == derive(best / "best.onnx").card().labels


def test_the_card_on_the_page_is_what_the_command_writes(test_data, tmp_path):
    shutil.copy(test_data / "models" / "yolov8n_640_deq_dyn.onnx", tmp_path / "best.onnx")
    assert f"```yaml\n{derive(tmp_path / 'best.onnx').text(tmp_path)}```" in CARDS


def default(name: str) -> object:
    owner = InputSpec if name.startswith("input.") else Card
    fields = {field.name: field.default for field in dataclasses.fields(owner)}
    return fields.get(name.removeprefix("input."))


def test_the_reference_has_every_key_and_its_default():
    rows = {cells[0].strip("`"): cells[2] for cells in table(CARDS, "## Keys of a card")}
    assert list(rows) == [
        name for key in CardKeys.__annotations__
        for name in ([key, *(f"input.{inner}" for inner in InputKeys.__annotations__)] if key == "input" else [key])
    ]  # fmt: skip
    required = {"task", "family", "file", "input", "input.size"}
    assert {key for key, cell in rows.items() if cell == "required"} == required
    hints = {**get_type_hints(CardKeys, include_extras=True)}
    hints |= {f"input.{key}": hint for key, hint in get_type_hints(InputKeys, include_extras=True).items()}
    assert required == {key for key, hint in hints.items() if get_origin(hint) is Required}
    for key in ("input.resize", "input.anchor", "input.color"):
        assert rows[key] == f"`{default(key)}`"
    for key in ("input.pad", "input.scale", "score", "iou"):
        assert float(rows[key]) == default(key)
    assert (float(rows["input.mean"]), float(rows["input.std"])) == (default("input.mean")[0], default("input.std")[0])


def families() -> list[tuple[str, list[str]]]:
    """Task and cells of each row of the reference of families."""
    found, task = [], ""
    for cells in table(FAMILY_PAGE, "## Families"):
        task = cells[0].strip("| `") or task
        found.append((task, [cell.strip("| ") for cell in cells]))
    return found


def test_the_reference_has_every_family_under_its_task():
    found = {cells[1].strip("`"): task for task, cells in families()}
    assert found == {name: family.task for name, family in FAMILIES.items()}


SIZES = {"N": "N", "A": 84, "Q": 60, "K": 50, "P": 17, "M": 32, "D": 128, "h": 40, "w": 44}


def shapes(outputs: str, classes: int) -> dict[str, list[object]]:
    """The outputs of a row by name, with their shapes."""
    found: dict[str, list[object]] = {}
    for name, text in re.findall(r"(?:(\w+)`? )?\(([^()]*)\)", outputs):
        sides = [re.sub(r"(\d) ([A-Z])", r"\1 * \2", side) for side in text.split(", ")]
        shape = [eval(side, {**SIZES, "C": classes}) for side in sides]
        strides = (8, 16, 32) if name.endswith("_S") else (None,)
        found |= {name if stride is None else f"{name[:-1]}{stride}": list(shape) for stride in strides}
    return found


@pytest.mark.parametrize(("name", "outputs"), [
    (cells[1].strip("`"), one) for _, cells in families() for one in cells[2].split(" or ")
])  # fmt: skip
def test_a_family_reads_the_outputs_of_the_reference(name, outputs):
    family = FAMILIES[name]
    classes = 1 if family.label else 3
    family.check(shapes(outputs, classes), classes)
    fixed = [re.findall(r"[^,()]+", text) for text in re.findall(r"\(([^()]*)\)", outputs)]
    for output, sides in enumerate(fixed):
        for axis, side in enumerate(sides):
            if re.search(r"\d|C", side):
                changed = shapes(outputs, classes)
                changed[list(changed)[output * len(changed) // len(fixed)]][axis] += 1
                with pytest.raises(ValueError, match=f"family {name}"):
                    family.check(changed, classes)


@pytest.mark.parametrize(("name", "nms"), [(cells[1].strip("`"), cells[4]) for _, cells in families()])
def test_the_reference_says_whether_boxes_are_suppressed(name, nms):
    assert nms == ("yes" if FAMILIES[name].suppress else "no")
