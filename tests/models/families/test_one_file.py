"""All that is known of a built-in family is in its file: cards, hints, references and docs take it from there."""

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.errors import ModelError
from streamkit.models import reference
from streamkit.models.derive import derive
from streamkit.models.families import FAMILIES, ReadOptions, family, unpack
from streamkit.models.families.base import Family, FamilyTraits, OutputFormat, authors_input, network_family
from streamkit.ops.candidates import labeled_class
from streamkit.ops.letterbox import InputSpec

LABELS = ["red", "green", "blue"]
ROW = [10, 20, 30, 60, 0.9, 2, 7, 7]
SIZE = (640, 640)


@pytest.fixture
def stacks():
    """A family of rows x1, y1, x2, y2, score and class, and two values that are always 7."""

    def not_sevens(values, size, classes):
        return "" if (values["stacks"][..., 6:] == 7).all() else "its last values are not 7"

    @network_family(
        "stacks",
        FamilyTraits(
            formats=(OutputFormat("`stacks` (N, K, 8)", "x1, y1, x2, y2, score, class, 7, 7"),),
            line=authors_input("Stacks", 0.35, resize="stretch", color="bgr"),
            plausible=lambda info, size: "stacks" in info.outputs,
            doubt=not_sevens,
            reference=lambda image: image.outputs["stacks"][:, :6],
            ultralytics=("stack",),
        ),
    )
    class Stacks(Family):
        """Rows with two values behind."""

        layout = "(N, rows, 8)"
        sizes = ((2, 8, "box, score, class, 7, 7"),)

        def candidates(self, outputs, n, input_size, min_score):
            rows = outputs["stacks"][:n]
            return labeled_class(rows[:, :, :4], rows[:, :, 4], rows[:, :, 5], min_score=min_score)

    yield family("stacks")
    del FAMILIES["stacks"]


def network(path, last=7, metadata=None):
    (path.parent / "labels.txt").write_text("\n".join(LABELS))
    rows = np.array([[*ROW[:6], last, last]] * 33, np.float32)[None]
    return shaped(path, {"stacks": [1, 33, 8]}, values={"stacks": rows}, metadata=metadata)


@pytest.mark.usefixtures("stacks")
def test_a_card_is_derived_with_the_input_of_the_authors(tmp_path):
    card = derive(network(tmp_path / "best.onnx")).card()
    assert (card.family, card.task, card.labels, card.score) == ("stacks", "detect", tuple(LABELS), 0.35)
    assert (card.input.resize, card.input.color) == ("stretch", "bgr")


@pytest.mark.usefixtures("stacks")
def test_a_run_excludes_networks_with_other_values(tmp_path):
    with pytest.raises(ModelError, match="not stacks: its last values are not 7, in a run on a gray image"):
        derive(network(tmp_path / "best.onnx", last=3))


@pytest.mark.usefixtures("stacks")
def test_the_task_in_the_metadata_selects_the_family(tmp_path):
    metadata = {"task": "stack", "names": str(dict(enumerate(LABELS))), "stride": "32"}
    assert derive(network(tmp_path / "best.onnx", metadata=metadata)).card().family == "stacks"


def test_the_family_reads_what_its_reference_reads(stacks):
    outputs = {"stacks": np.array([[ROW]], np.float32)}
    packed = stacks.read(
        outputs, np.array([[1, 1, 0, 0]], np.float32), np.array([SIZE]), SIZE, ReadOptions(np.full(3, 0.5, np.float32))
    )
    table = unpack(packed.rows, packed.counts, tuple(LABELS), {})
    rows = reference.objects(stacks, outputs, (1, 1, 0, 0), SIZE, InputSpec(SIZE), min_score=0.5, iou=0.5)
    np.testing.assert_allclose(rows, [ROW[:6]], rtol=1e-6)
    np.testing.assert_allclose(table.xyxy, rows[:, :4])


@pytest.mark.usefixtures("stacks")
def test_the_reference_of_model_cards_lists_the_family(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "docs")
    from reference_pages.model_cards import page

    assert "| detect | `stacks` | `stacks` (N, K, 8) | x1, y1, x2, y2, score, class, 7, 7 | no |" in "\n".join(page())
