"""Network families of plugins: the two that ship, on networks that measure rectangles, and what is refused."""

import dataclasses
import importlib.metadata
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.blobs import NETWORKS, blob_card, nanodet_network, picture

from streamkit.cli.command import cli
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plugins import load_plugins
from streamkit.core.data import Batch, Device
from streamkit.core.errors import ConfigError, ModelError
from streamkit.core.stage import Context, Registry, default_registry
from streamkit.models.card import load_card
from streamkit.models.check import check, frames_of
from streamkit.models.families import FAMILIES, ReadOptions, family
from streamkit.models.network import check_model
from streamkit.models.session import Session
from streamkit.ops.transfer import fetch
from streamkit.stages.inference import postprocess
from streamkit.stages.inference.detectors import Detect
from streamkit.stages.inference.postprocess import ON_HOST, Postprocess
from streamkit.testing.kit import frames, run_stage

PLUGINS = Path(__file__).resolve().parents[3] / "plugins"
OBJECTS = [("red", 8, 8, 32, 24), ("blue", 68, 40, 108, 80), ("red", 50, 60, 62, 84)]
"""Their centers are at places of the heatmap's grid, where it has one peak each."""


@pytest.fixture(scope="module")
def cards(tmp_path_factory):
    """The cards of both networks, with their plugins' families."""
    folder = tmp_path_factory.mktemp("cards")
    registry = Registry()
    load_plugins(PLUGINS, registry)
    return {name: load_card(blob_card(name, folder), registry.families) for name in NETWORKS}


def scenes(n, *, rng_seed=3):
    """Pictures of one rectangle of each color, and where these are in source pixels."""
    rng = np.random.default_rng(rng_seed)
    pairs = []
    for _ in range(n):
        center = rng.integers(4, 6, 2) * 4
        half = rng.integers(4, 15, 2)
        near = ("red", *(center - half).tolist(), *(center + half).tolist())
        center = rng.integers(18, 21, 2) * [5, 4]
        half = rng.integers(4, 12, 2)
        center[0] -= center[0] % 4
        far = ("blue", *(center - half).tolist(), *(center + half).tolist())
        pairs.append((near, far))
    return pairs


def rows_of(table):
    order = np.lexsort(table.xyxy.T)
    return [(table.label[i], *np.round(table.xyxy[i]).tolist()) for i in order]


def truth_of(objects):
    return sorted(((color, *(2.0 * value for value in box)) for color, *box in objects), key=lambda row: row[:0:-1])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_boxes_of_a_frame_are_the_rectangles_in_it(name, cards):
    processed = run_stage(Detect(model=cards[name]), frames(2, pixels=picture(*OBJECTS)))
    for frame in processed:
        assert rows_of(frame.detections) == truth_of(OBJECTS)
        np.testing.assert_allclose(frame.detections.xyxy, np.round(frame.detections.xyxy), atol=0.05)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_batch_of_32_equals_its_frames_one_by_one(name, cards):
    images = [frame for objects in scenes(32) for frame in frames(1, pixels=picture(*objects))]
    for index, frame in enumerate(images):
        frame.index = index
    single, many = (run_stage(Detect(model=cards[name]), images, batch=size) for size in (1, 32))
    for objects, alone, together in zip(scenes(32), single, many, strict=True):
        assert rows_of(alone.detections) == truth_of(objects)
        np.testing.assert_array_equal(together.detections.xyxy, alone.detections.xyxy)
        np.testing.assert_array_equal(together.detections.score, alone.detections.score)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"labels": ["blue"]}, [1]),
        ({"min_score": {"red": 1.0}}, [1]),
        ({"min_size": 40}, [1]),
        ({"max_size": 50}, [0, 2]),  # in source pixels
    ],
)
def test_a_detectors_options_apply(name, options, left, cards):
    (processed,) = run_stage(Detect(model=cards[name], **options), frames(1, pixels=picture(*OBJECTS)))
    assert rows_of(processed.detections) == truth_of([OBJECTS[i] for i in left])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_best_candidates_are_kept(name, cards):
    whole, best = (
        run_stage(Detect(model=cards[name], top_k=k), frames(1, pixels=picture(*OBJECTS)))[0].detections for k in (9, 1)
    )
    assert best.score.tolist() == [whole.score.max()]


@pytest.mark.parametrize("name", NETWORKS)
def test_tiles_and_cascades_work_with_a_plugin_family(name, cards):
    from streamkit.core.units import Of
    from streamkit.stages.inference.inference_regions import Tiles
    from streamkit.testing.kit import detections

    wide = np.tile(picture(*OBJECTS), (2, 2, 1))
    (processed,) = run_stage(Detect(model=cards[name], tiles=Tiles((256, 192), 0.0, False)), frames(1, pixels=wide))
    moved = [(c, x1 + x, y1 + y, x2 + x, y2 + y) for c, x1, y1, x2, y2 in OBJECTS for x in (0, 128) for y in (0, 96)]
    assert rows_of(processed.detections) == truth_of(moved)
    images = frames(1, pixels=wide)
    images[0].tables["area"] = detections([[256, 192, 512, 384]])
    (processed,) = run_stage(Detect(model=cards[name], of=Of("area"), pad=0.0), images, stage_id="inside")
    assert rows_of(processed.tables["inside"]) == truth_of(
        [(c, x1 + 128, y1 + 96, x2 + 128, y2 + 96) for c, x1, y1, x2, y2 in OBJECTS]
    )


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_models_check_passes(name, device, cards, tmp_path):
    import cv2

    cv2.imwrite(str(tmp_path / "scene.png"), picture(*OBJECTS)[..., ::-1])
    report = check(cards[name], frames_of([tmp_path / "scene.png"]), Device(device))
    assert report.passed, str(report)
    assert report.objects == 3


def test_models_check_fails_where_the_variant_for_the_other_device_differs(cards, tmp_path):
    """The reference calls the function itself; here another one takes the part of the pipeline's."""
    import cv2

    def shifted(outputs, input_size):
        boxes, scores = card.decoder.decode(outputs, input_size)
        return boxes + np.float32(9), scores

    cv2.imwrite(str(tmp_path / "scene.png"), picture(*OBJECTS)[..., ::-1])
    card = cards["nanodet"]

    class Differs(type(card.decoder)):
        def candidates(self, outputs, n, input_size, min_score):
            return dataclasses.replace(card.decoder, decode=shifted).candidates(outputs, n, input_size, min_score)

    values = {field.name: getattr(card.decoder, field.name) for field in dataclasses.fields(card.decoder)}
    report = check(dataclasses.replace(card, decoder=Differs(**values)), frames_of([tmp_path / "scene.png"]))
    assert not report.passed


def test_the_command_checks_a_card_of_a_plugin(tmp_path):
    import cv2

    cv2.imwrite(str(tmp_path / "scene.png"), picture(*OBJECTS)[..., ::-1])
    card = blob_card("nanodet", tmp_path)
    image = str(tmp_path / "scene.png")
    completed = CliRunner().invoke(cli, ["models", "check", str(card), image, "--plugins", str(PLUGINS / "nanodet.py")])
    assert completed.exit_code == 0, completed.output
    assert "objects   3, 100.0% the same" in completed.output
    completed = CliRunner().invoke(
        cli, ["models", "check", str(card), image, "--plugins", str(PLUGINS / "tripwire.py")]
    )
    assert completed.exit_code != 0


def test_the_commands_write_cards_of_a_plugin_s_family(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    nanodet_network(tmp_path / "mine.onnx")
    (tmp_path / "names.txt").write_text("red\nblue\n")

    def models(*words, plugin="nanodet"):
        completed = CliRunner().invoke(cli, ["models", *words, "--plugins", str(PLUGINS / f"{plugin}.py")])
        return completed.exit_code, completed.output + str(completed.exception or "")

    new = ("new", "mine.onnx", "--family", "nanodet", "--labels", "names.txt")
    assert "yunet; --plugins FILE adds a plugin's" in models(*new, plugin="tripwire")[1]
    assert "no source names the classes, for family nanodet" in models(*new[:4])[1]
    code, text = models(*new)
    assert (code, text.splitlines()[0]) == (0, "mine.yaml: detect, family nanodet, 128x96, 2 classes")
    (tmp_path / "names.txt").write_text("red\ngreen\nblue\n")
    assert "dimension 2 must be 35; classes + 32 is 35, with classes 3" in models(*new, "--force")[1]
    code, text = models("convert", "mine.yaml", "--f16", str(root / "samples" / "street.mp4"), "--max-loss", "1")
    assert (code, "wrote " in text) == (0, True)
    registry = Registry()
    load_plugins(PLUGINS, registry)
    first, converted = (load_card(tmp_path / f"{name}.yaml", registry.families) for name in ("mine", "mine_f16"))
    same = ("task", "family", "input", "labels", "score", "iou", "decoder")
    assert [getattr(first, name) for name in same] == [getattr(converted, name) for name in same]


def test_list_shows_families_of_plugins():
    completed = CliRunner().invoke(cli, ["list", "--plugins", str(PLUGINS)])
    assert (
        "nanodet  network family  output (batch, anchors, classes + 32)  NanoDet-Plus: scores, and" in completed.output
    )


def test_the_example_of_the_docs_finds_its_box(tmp_path):
    page = (PLUGINS.parent / "docs" / "plugins-families.md").read_text()
    (tmp_path / "centers.py").write_text(re.search(r"```python\n(# plugins/centers\.py\n.*?)```", page, re.DOTALL)[1])
    registry = Registry()
    load_plugins(tmp_path, registry)
    outputs = {
        "scores": np.float32([[[0.1, 0.9], [0.2, 0.1]]]),
        "centers": np.float32([[[0.5, 0.25], [0, 0]]]),
        "sizes": np.float32([[[0.25, 0.5], [1, 1]]]),
    }
    reads = registry.families["centers"].for_input((128, 96))
    reads.check({name: value.shape for name, value in outputs.items()}, 2)
    options = ReadOptions(np.full(2, 0.5, np.float32))
    packed = reads.read(outputs, np.float32([[0.5, 0.5, 0, 0]]), np.array([[256, 192]]), (128, 96), options)
    np.testing.assert_allclose(packed.rows[0, 0], [96, 0, 160, 96, 0.9, 1])


# ------------------------------------------------------------------------------------------------------ registration


PIPELINE = (
    "plugins: [{plugins}]\nsources: {{pattern: {{stage: test_pattern}}}}\nstages:\n  detect: {{model: nanodet}}\n"
)
MINIMAL = '''
import numpy as np
from streamkit.plugin_api import family

@family({name!r}, outputs={{"output": ("anchors", "classes + 32")}})
def {function}(outputs, input_size):
    """{summary}"""
    return np.zeros((len(outputs["output"]), 1, 4)), np.zeros((len(outputs["output"]), 1, 2))
'''


def minimal(path, name="nanodet", function="read", summary="Nothing."):
    path.write_text(MINIMAL.format(name=name, function=function, summary=summary))
    return path


def problems_of(text, folder):
    try:
        build(read_text(text, folder=folder))
    except ConfigError as error:
        return [problem.text for problem in error.problems]
    return []


def test_a_card_names_the_family_of_its_pipelines_plugin(tmp_path):
    blob_card("nanodet", tmp_path)
    graph = build(read_text(PIPELINE.format(plugins=PLUGINS / "nanodet.py"), folder=tmp_path))
    assert graph.nodes["detect.postprocess"].options["model"].decoder.name == "nanodet"


def test_a_family_does_not_leak_into_another_pipeline(tmp_path):
    blob_card("nanodet", tmp_path)
    config = read_text(PIPELINE.format(plugins=minimal(tmp_path / "one.py")), folder=tmp_path)
    other = read_text(PIPELINE.format(plugins=minimal(tmp_path / "other.py")), folder=tmp_path)
    files = [build(each).nodes["detect.postprocess"].options["model"].decoder.origin[0] for each in (config, other)]
    assert [Path(file).name for file in files] == ["one.py", "other.py"]
    (problem,) = problems_of(PIPELINE.format(plugins="").replace("plugins: []\n", ""), tmp_path)
    assert problem.startswith("family must be one of ")
    assert problem.endswith(
        "got 'nanodet'; for a family of a plugin, name its file: plugins: in the pipeline, or --plugins"
    )
    assert "nanodet" not in FAMILIES
    assert "nanodet" not in default_registry().families


def test_an_edited_plugin_is_another_family(tmp_path):
    blob_card("nanodet", tmp_path)
    text = PIPELINE.format(plugins="mine.py")
    cards_read = []
    for summary in ("One.", "Two.", "Two."):
        minimal(tmp_path / "mine.py", summary=summary)
        cards_read.append(build(read_text(text, folder=tmp_path)).nodes["detect.postprocess"].options["model"])
    assert [card.decoder.summary for card in cards_read] == ["One.", "Two.", "Two."]
    assert cards_read[0] != cards_read[1]
    assert cards_read[1] == cards_read[2]


def test_a_misspelled_family_is_reported_with_a_suggestion(tmp_path):
    card = blob_card("nanodet", tmp_path)
    card.write_text(card.read_text().replace("family: nanodet", "family: nanodett"))
    (problem,) = problems_of(PIPELINE.format(plugins=PLUGINS / "nanodet.py"), tmp_path)
    assert problem.endswith("got 'nanodett'; did you mean 'nanodet'?")


def test_a_built_in_family_can_be_replaced(tmp_path):
    registry = Registry()
    notes = load_plugins(minimal(tmp_path / "mine.py", "yolox"), registry)
    assert notes == ["the family yolox of mine.py replaces the built-in family of that name"]
    card = blob_card("nanodet", tmp_path)
    card.write_text(card.read_text().replace("family: nanodet", "family: yolox"))
    assert load_card(card, registry.families).decoder is not None
    assert load_card(card).decoder is None


def test_two_plugins_cannot_register_the_same_family(tmp_path):
    registry = Registry()
    for name in ("a", "b"):
        minimal(tmp_path / f"{name}.py")
    with pytest.raises(
        ConfigError, match=r"two plugins claim the network family 'nanodet': read in .*a\.py and read in"
    ):
        load_plugins(tmp_path, registry)


def test_an_installed_package_provides_families_to_every_registry(tmp_path, monkeypatch):
    minimal(tmp_path / "installed_families.py", "mine")
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.metadata.EntryPoint("mine", "installed_families", "streamkit.stages")
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry] if group == "streamkit.stages" else []
    )
    try:
        assert [list(default_registry().families) for _ in range(2)] == [["mine"], ["mine"]]
    finally:
        del sys.modules["installed_families"]


# ----------------------------------------------------------------------------------------------- what is refused


def plugin_family(function=lambda outputs, input_size: None, **declared):
    """A family of the function, as a pipeline's card has it."""
    from streamkit.core.stage import Collecting
    from streamkit.plugin_api import family as declare

    with Collecting(Registry()) as registry:
        declare("mine", **{"outputs": {"output": ("anchors", "classes + 4")}, **declared})(function)
    return registry.families["mine"].for_input((128, 96))


@pytest.mark.parametrize(
    ("declared", "network", "message"),
    [
        ({}, {"boxes": ("N", 9, 6)}, r"the network has no output output; it has boxes\['N', 9, 6\]"),
        (
            {},
            {"output": ("N", 9)},
            r"output 'output' must be \(batch, anchors, classes \+ 4\), its shape is \('N', 9\): it has 2 dimensions",
        ),
        (
            {},
            {"output": ("N", 9, 7)},
            r"\('N', 9, 7\): dimension 2 must be 6; classes \+ 4 is 6, with classes 2, width 128, height 96",
        ),
        (
            {"outputs": {"hm": ("classes", "-(-height // 64)", "width // 4")}},
            {"hm": ("N", 2, 2, 24)},
            r"dimension 3 must be 32; width // 4 is 32",
        ),
        (
            {"outputs": {"a": ("k", 4), "b": ("k",)}},
            {"a": ("N", 9, 4), "b": ("N", 8)},
            r"dimension 1 must be 9; k is 9 in output 'a'",
        ),
        ({"outputs": {"a": (3,)}}, {"a": ("N", 4)}, r"dimension 1 must be 3$"),
    ],
)
def test_a_network_without_the_declared_outputs_is_refused(declared, network, message):
    with pytest.raises(ValueError, match=r"^family mine of .*test_plugin\.py: .*" + message):
        plugin_family(**declared).check(network, 2)


def read_doubles(**declared):
    """How many of two copies of a box are left, of the outputs' first value as their score."""

    def twice(outputs, input_size):
        output = outputs["output"]
        assert output.dtype == np.float32
        return np.float32([[[10, 10, 50, 50]] * 2]), np.full((1, 2, 1), output.flat[0])

    reads = plugin_family(twice, **declared)
    outputs = {"output": np.full((1, 2, 5), 0.9, np.float16)}
    options = ReadOptions(np.float32([0.5]))
    packed = reads.read(outputs, np.float32([[1, 1, 0, 0]]), np.array([[128, 96]]), (128, 96), options)
    return int(packed.counts[0, 0])


def test_nms_is_applied_unless_the_family_disables_it():
    assert (read_doubles(), read_doubles(nms=False)) == (1, 2)


def test_open_sizes_and_further_outputs_are_accepted():
    plugin_family(outputs={"a": ("k", "classes + 4"), "b": ("k",)}).check(
        {"a": ("N", None, "C"), "b": (1, 7), "c": (1,)}, 2
    )


def test_check_refuses_a_card_whose_network_differs(cards):
    card = dataclasses.replace(cards["nanodet"], labels=("red", "blue", "green"))
    with pytest.raises(ModelError, match=r"dimension 2 must be 35; classes \+ 32 is 35, with classes 3"):
        check_model(card)


ROWS = np.zeros((2, 5, 4), np.float32)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, r"it must return \(boxes, class_scores\) or \(boxes, scores, class_ids\), got NoneType"),
        ((ROWS,), r"it must return .*, got a tuple of 1"),
        (([[1, 2, 3, 4]], ROWS[..., :3]), r"boxes must be \(2, anchors, 4\) as an array of numpy, got list"),
        ((ROWS[..., :3], ROWS[..., :3]), r"boxes must be \(2, anchors, 4\), got \(2, 5, 3\)"),
        ((ROWS[:1], ROWS[:1, :, :3]), r"boxes must be \(2, anchors, 4\), got \(1, 5, 4\)"),
        ((ROWS.astype(int), ROWS[..., :3]), r"boxes must be floats, got int64"),
        ((ROWS, ROWS[:, :4, :3]), r"class_scores must be \(2, anchors, 3\), got \(2, 4, 3\)"),
        ((ROWS, ROWS[..., :2]), r"class_scores must be \(2, anchors, 3\), got \(2, 5, 2\)"),
        ((ROWS, ROWS[..., 0], ROWS[..., 0]), r"class_ids must be integers, got float32"),
        ((ROWS, ROWS, ROWS[..., 0].astype(int)), r"scores must be \(2, anchors\), got \(2, 5, 4\)"),
    ],
)
def test_candidates_of_a_wrong_form_name_the_plugin_and_the_rule(returned, message):
    outputs = {"output": np.zeros((2, 5, 7), np.float32)}
    with pytest.raises(ValueError, match=r"^family mine of .*test_plugin\.py: " + message):
        plugin_family(lambda outputs, input_size: returned).candidates(
            outputs, 2, (128, 96), np.full(3, 0.5, np.float32)
        )


def test_a_family_that_fails_marks_the_frame_and_names_its_line(tmp_path):
    text = minimal(tmp_path / "mine.py").read_text().replace("    return", "    raise ValueError('7 bins')\n    return")
    (tmp_path / "mine.py").write_text(text)
    registry = Registry()
    load_plugins(tmp_path / "mine.py", registry)
    card = load_card(blob_card("nanodet", tmp_path), registry.families)
    (processed,) = run_stage(Detect(model=card), frames(1, pixels=picture()), on_error="skip")
    assert "7 bins" in processed.error
    assert "mine.py" in processed.error


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda family: family(print), "@family needs the name that cards use"),
        (lambda family: family("x", outputs={}), r"family 'x' must declare its outputs, as in outputs="),
        (lambda family: family("x", outputs={"a": "anchors"}), "output 'a' must have a tuple of dimensions"),
        (lambda family: family("x", outputs={"a": ("k + 4",)}), r"the dimension 'k \+ 4' of output 'a' must be"),
        (lambda family: family("x", outputs={"a": ("classes +",)}), r"the dimension 'classes \+' of output 'a'"),
        (lambda family: family("x", outputs={"a": (1,)}, cuda="yes"), "cuda must be a function for CuPy arrays"),
    ],
)
def test_an_invalid_declaration_is_refused(declare, message):
    from streamkit.plugin_api import family as plugin_api_family

    with pytest.raises(TypeError, match=message):
        declare(plugin_api_family)


# ------------------------------------------------------------------------------------------------------------ the GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_device_decodes_as_the_host(name, on_gpu, cards):
    import cupy

    from streamkit.ops import traffic

    card = check_model(cards[name])
    reads = dataclasses.replace(card.decoder, cuda=card.decoder.decode if on_gpu and name == "centernet" else None)
    tensor = (
        np.stack([picture(*objects)[::2, ::2].transpose(2, 0, 1) for objects in scenes(4)]).astype(np.float32) / 255
    )
    outputs = Session(card.file, Device()).run({"images": tensor})
    frames_wh = np.tile(np.float32([0.5, 0.5, 0, 0]), (4, 1)), np.full((4, 2), (256, 192))
    options = ReadOptions(np.full(2, 0.3, np.float32))
    host = reads.read(outputs, *frames_wh, card.input.size, options)
    before = traffic.so_far().to_host
    packed = reads.read(
        {key: cupy.asarray(value) for key, value in outputs.items()}, *frames_wh, card.input.size, options
    )
    copied = traffic.so_far().to_host - before
    assert isinstance(packed.rows, np.ndarray) == reads.host_only
    assert copied == (sum(value.nbytes for value in outputs.values()) if reads.host_only else 0)
    rows, counts = (cupy.asnumpy(array) for array in (packed.rows, packed.counts))
    np.testing.assert_array_equal(counts, host.counts)
    np.testing.assert_allclose(rows, host.rows, rtol=1e-5, atol=1e-4)
    assert (counts[:, 0] == 2).all()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_pipeline_counts_batches_that_are_decoded_on_the_host(name, device, tmp_path, run_pipeline):
    import cv2

    for index, objects in enumerate(scenes(5)):
        cv2.imwrite(str(tmp_path / f"scene-{index}.png"), picture(*objects)[..., ::-1])
    text = f"""
plugins: [{PLUGINS}]
sources: {{a: {tmp_path}/scene-*.png}}
stages:
  detect: {{model: {blob_card(name, tmp_path)}}}
  collect: {{}}
"""
    processed = run_pipeline(text, device=device)
    records = [record for source in processed.records for record in processed.records[source]]
    assert len(records) == 5
    assert all(len(record["objects"]) == 2 for record in records)
    copies = processed.report["counts"].get(ON_HOST, 0)
    assert copies > 0 if device == "cuda" and name == "nanodet" else copies == 0


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_of_a_device_are_copied_first_and_decoded_when_the_table_is_read(name, cards, monkeypatch):
    """The device's arrays are the host's here; what is not the host's module is another."""
    card = dataclasses.replace(cards[name], decoder=dataclasses.replace(cards[name].decoder, cuda=None))
    tensor = (
        np.stack([picture(*objects)[::2, ::2].transpose(2, 0, 1) for objects in scenes(3)]).astype(np.float32) / 255
    )
    outputs = Session(card.file, Device()).run({"images": np.concatenate([tensor, tensor[:1]])})  # a row of padding
    stage = Postprocess(model=card)
    stage.context = Context("detect.postprocess")
    stage.open()
    images = frames(3, width=256, height=192)
    batch = Batch(images, outputs=outputs, geometry=np.tile(np.float32([0.5, 0.5, 0, 0]), (3, 1)))
    copied = []
    with monkeypatch.context() as patch:
        patch.setattr(postprocess, "fetch", lambda arrays: copied.append(arrays) or fetch(arrays))
        patch.setattr(Batch, "xp", property(lambda self: "another module"))
        batch = stage.process(batch)
    assert callable(batch.tables["detect"])
    assert [len(array) for array in copied[0]] == [3] * len(outputs)
    table = batch.table("detect")
    for row, objects in enumerate(scenes(3)):
        assert rows_of(table[np.flatnonzero(table.batch_row == row)]) == truth_of(objects)
    assert stage.context.counters[ON_HOST] == 1


def test_a_built_in_family_decodes_on_the_device():
    assert not family("yolov8").host_only
