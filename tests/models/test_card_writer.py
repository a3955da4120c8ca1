"""Cards that are written read back as what they were."""

import dataclasses

import pytest

from streamkit.core.errors import OutputError
from streamkit.models.card import list_cards, load_card
from streamkit.models.card_writer import card_text, check_targets, write_network_and_card
from streamkit.models.network import sha256


@pytest.mark.parametrize("path", list_cards(), ids=lambda path: path.stem)
def test_every_written_card_loads_as_the_same_card(path, tmp_path):
    card = load_card(path)
    (tmp_path / "made.yaml").write_text(card_text(card, "made.onnx", "ab" * 32, ["one line", "another"]))
    reloaded = load_card(tmp_path / "made.yaml")
    changes = {"name": "made", "path": tmp_path / "made.yaml", "file": (tmp_path / "made.onnx").resolve(), "url": ""}
    assert reloaded == dataclasses.replace(card, sha256="ab" * 32, **changes)
    assert (tmp_path / "made.yaml").read_text().startswith("# one line\n# another\ntask: ")


def test_the_text_encoder_is_resolved_from_another_folder(tmp_path, root):
    card = load_card(root / "models" / "demo-words-crop.yaml")
    card = dataclasses.replace(card, text=dataclasses.replace(card.text, template="a {}", length=9))
    write_network_and_card(card.file, tmp_path / "made.onnx", card, tmp_path / "made.yaml", [])
    assert "tokenizer: ../" in (tmp_path / "made.yaml").read_text()
    assert load_card(tmp_path / "made.yaml").text == card.text


def test_ignored_outputs_are_written_and_read(tmp_path, root):
    card = dataclasses.replace(load_card(root / "models" / "demo.yaml"), ignore_outputs=("masks", "more"))
    (tmp_path / "copy.yaml").write_text(card_text(card, "copy.onnx", "ab" * 32))
    assert load_card(tmp_path / "copy.yaml").ignore_outputs == ("masks", "more")


def test_lists_of_labels_and_unusual_words_are_written_and_read(tmp_path, root):
    card = load_card(root / "models" / "demo.yaml")
    card = dataclasses.replace(card, labels=("on", "1:30", "a: b", "'x'", "ü"), note="yes", score=0.0, iou=1.0)
    (tmp_path / "made.yaml").write_text(card_text(card, "made.onnx", "ab" * 32), encoding="utf-8")
    reloaded = load_card(tmp_path / "made.yaml")
    assert (reloaded.labels, reloaded.note, reloaded.score, reloaded.iou) == (card.labels, "yes", 0.0, 1.0)


def test_an_existing_file_is_not_overwritten_by_default(tmp_path):
    (tmp_path / "x.yaml").write_text("mine")
    with pytest.raises(OutputError, match="exists; replace it with --overwrite"):
        check_targets([tmp_path / "y.yaml", tmp_path / "x.yaml"], overwrite=False)
    check_targets([tmp_path / "x.yaml"], overwrite=True)


def test_network_and_card_are_written_together_or_not_at_all(tmp_path, root, monkeypatch):
    card = load_card(root / "models" / "demo.yaml")
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("streamkit.models.card_writer.card_text", lambda *_: "\udc80")  # cannot be encoded
        with pytest.raises(UnicodeEncodeError):
            write_network_and_card(card.file, out / "n.onnx", card, out / "n.yaml", [])
    assert list(out.iterdir()) == []
    write_network_and_card(card.file, out / "n.onnx", card, out / "n.yaml", [])
    assert sorted(file.name for file in out.iterdir()) == ["n.onnx", "n.yaml"]
    written = load_card(out / "n.yaml")
    assert sha256(written.file) == written.sha256 == sha256(card.file)


@pytest.mark.parametrize(("scale", "text"), [(1 / 255, "scale: 1/255"), (1 / 128, "scale: 1/128"), (0.3, "scale: 0.3")])
def test_a_scale_is_written_as_a_fraction(scale, text, tmp_path, root):
    card = load_card(root / "models" / "demo.yaml")
    card = dataclasses.replace(
        card, input=dataclasses.replace(card.input, scale=scale, mean=(0.0,) * 3, std=(1.0,) * 3)
    )
    (tmp_path / "made.yaml").write_text(card_text(card, "made.onnx", "ab" * 32))
    assert text + "}" in (tmp_path / "made.yaml").read_text() or text + "," in (tmp_path / "made.yaml").read_text()
    assert load_card(tmp_path / "made.yaml").input.scale == scale
