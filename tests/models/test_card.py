from pathlib import Path

import pytest

from streamkit.core.detections import Skeleton
from streamkit.core.errors import ModelError
from streamkit.core.user_cache import user_cache
from streamkit.models.card import called, family_of, find_card, list_cards, load_card, shipped_models
from streamkit.models.families import FAMILIES, family
from streamkit.models.labels import LABEL_LISTS

GOOD = """\
task: detect
family: yolov8
file: net.onnx
input: {size: [640, 480], scale: 1/255, color: rgb}
labels: [car, person]
"""


def write(folder: Path, text: str, name: str = "net.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def problems(folder: Path, text: str) -> list[str]:
    path = write(folder, text)
    with pytest.raises(ModelError) as caught:
        load_card(path)
    return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]


def test_missing_keys_have_their_defaults(tmp_path):
    card = load_card(write(tmp_path, GOOD))
    assert (card.name, card.task, card.family, card.labels) == ("net", "detect", "yolov8", ("car", "person"))
    assert card.file == tmp_path.resolve() / "net.onnx"
    assert (card.score, card.iou, card.url, card.sha256, card.note) == (0.25, 0.45, "", "", "")
    assert card.input.size == (640, 480)
    assert card.input.scale == 1 / 255
    assert (card.input.resize, card.input.anchor, card.input.pad) == ("letterbox", "center", 114)
    assert (card.input.mean, card.input.std) == ((0, 0, 0), (1, 1, 1))


ALL_KEYS = """\
task: classify
family: logits
file: sub/net.onnx
url: https://example.org/net.onnx
sha256: "SUM"
input: {size: [224, 200], resize: crop, resize_to: 256, color: bgr, scale: 1e-2,
        mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}
labels: names.txt
score: 0.5
iou: 1
license: MIT
note: >-
  in two
  lines
"""


def test_all_keys_are_read(tmp_path):
    write(tmp_path, "no\n\n  yes \n", "names.txt")
    card = load_card(write(tmp_path, ALL_KEYS.replace("SUM", "Ab" * 32)))
    assert card.labels == ("no", "yes")
    assert card.file == user_cache("models", f"net-{card.sha256[:12]}.onnx")
    assert card.sha256 == "ab" * 32
    assert (card.input.resize, card.input.resize_to, card.input.color) == ("crop", 256, "bgr")
    assert (card.input.scale, card.input.mean, card.input.std[2]) == (0.01, (0.485, 0.456, 0.406), 0.225)
    assert (card.score, card.iou, card.license, card.note) == (0.5, 1, "MIT", "in two lines")


def test_all_problems_are_reported_at_once(tmp_path):
    texts = problems(
        tmp_path,
        """\
tsk: detect
family: yolov9
file: net.onnx
url: ftp://example.org/x
sha256: 12
input: {size: [640], anchor: centr, scales: 2, pad: 300, std: 0, resize_to: 9}
labels: cocoa
score: 2
license: Apache-2.0
""",
    )
    assert texts == [
        "1:1: a card has no key 'tsk'; did you mean 'task'?",
        f"2:9: family must be one of {', '.join(sorted(FAMILIES))}, got 'yolov9'; did you mean 'yolov8'?",
        "4:6: url must begin with https:// or http://, got 'ftp://example.org/x'",
        "5:9: sha256 must be text: put quotes around it",
        "6:15: input.size must be [width, height] in pixels, got [640]",
        "6:30: input.anchor must be one of center, top_left, got 'centr'; did you mean 'center'?",
        "6:37: a card has no key 'input.scales'; did you mean 'scale'?",
        "6:53: input.pad must be 0 to 255, got 300",
        "6:63: input.std must be above 0, got 0",
        "6:77: input.resize_to is for resize: crop, not letterbox",
        f"7:9: labels 'cocoa' is neither a known list ({', '.join(LABEL_LISTS)}) nor a file: there is no "
        f"{tmp_path / 'cocoa'}; did you mean 'coco'?",
        "8:8: score must be 0 to 1, got 2",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("file: net.onnx\n", ""), "1:1: the key 'file' is missing"),
        (("file: net.onnx", "file: [a]"), "3:7: file must be text, got ['a']"),
        (("labels: [car, person]\n", ""), "1:1: the key 'labels' is missing"),
        (("labels: [car, person]", "labels: []"), "5:9: labels must be a list of class names, got []"),
        (("labels: [car, person]", "labels: [a, [b]]"), "5:9: labels must be a list of class names, got ['a', ['b']]"),
        (("input: {size", "input: 4 #"), "4:8: input must be a mapping such as"),
        (("size: [640, 480]", "pad: 0"), "4:8: the key 'input.size' is missing"),
        (("size: [640, 480]", "size: [0, 2]"), "4:15: input.size must be a whole number of pixels, at least 1, got 0"),
        (("1/255", "1/0"), "4:34: input.scale must be a number, or a fraction such as 1/255, got '1/0'"),
        (("1/255", "-1"), "4:34: input.scale must be above 0, got -1"),
        (("color: rgb", "mean: [1, 2]"), "4:47: input.mean must be one number or one for each of 3 channels"),
        (("task: detect", "task: detect\ntask: pose"), "2:1: the key 'task' is here twice, first in line 1"),
        (("family: yolov8", "family: yolov8\nurl: http://x.org/y"), "3:1: url needs sha256 beside it"),
        (("family: yolov8", "family: yolov8\nsha256: 'abc'"), "3:9: sha256 must be 64 hexadecimal digits, got 'abc'"),
        ((GOOD, "- 1"), "1:1: a card is a mapping"),
        (("task: detect", "task: [detect"), "2:7: not valid YAML"),
    ],
)
def test_an_invalid_card_is_refused_with_its_problem(change, expected, tmp_path):
    (text,) = problems(tmp_path, GOOD.replace(*change))
    assert text.startswith(expected)


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ("scale: 1/255, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]", (-2.1, 2.6)),
        ("mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375]", (-2.1, 2.6)),
        ("scale: 1/127.5, mean: 1", (-1, 1)),
        ("scale: 1/128, mean: 255/128", (-2, 0)),  # white is exactly the mean
        ("mean: [0, 0, 1]", (-1, 255)),
        ("mean: 127, std: 128", (-1, 1)),
        ("scale: 1/255, std: 10", (0, 0.1)),
        ("std: 1", (0, 255)),
        ("scale: 1/255, std: 1/255", (0, 255)),
    ],
)
def test_mean_and_std_are_in_the_units_after_scale(keys, values, tmp_path):
    spec = load_card(write(tmp_path, GOOD.replace("scale: 1/255", keys))).input
    factor, summand, _ = spec.affine()
    assert (summand.min(), (255 * factor + summand).max()) == pytest.approx(values, abs=0.05)


RULE = "a value is (pixel * scale - mean) / std"
APART = "apart in the network's input, and 0.1 to 255 are usual"
CONTRADICTIONS = {
    "scale: 1/128, mean: 127": (
        "4:41: input.mean 127 is above white, since scale 1/128 turns pixels into 0 to 1.99219, and "
        f"{RULE}; for (pixel - mean) * scale, write scale: 1, the same mean, and std: 128"
    ),
    "scale: 1/255, mean: [0.4, 1.01, 0.4]": (
        "4:41: input.mean [0.4, 1.01, 0.4] is above white, since scale 1/255 turns pixels into 0 to 1, and "
        f"{RULE}; for (pixel - mean) * scale"
    ),
    "scale: 1, mean: 1000": (
        "4:37: input.mean 1000 is above white, since scale 1 turns pixels into 0 to 255, and "
        f"{RULE}; give the mean in these units"
    ),
    "scale: 1/127.5, mean: -1": (
        "4:43: input.mean -1 is below 0, since scale 1/127.5 turns pixels into 0 to 2, and "
        f"{RULE}: write the mean without its sign"
    ),
    "mean: [0.485, 0.456, 0.406]": (
        "4:27: input.mean [0.485, 0.456, 0.406] is less than one of 255 levels, since scale 1 turns pixels into 0 to "
        "255; for a mean of pixels from 0 to 1, write scale: 1/255"
    ),
    "scale: 1/255, std: [58.395, 57.12, 57.375]": (
        "4:41: input.std [58.395, 57.12, 57.375] does not belong to scale 1/255: black and white are 0.0171 "
        f"{APART}; write scale: 1, for a std of pixels from 0 to 255"
    ),
    "std: [0.229, 0.224, 1]": (
        "4:27: input.std [0.229, 0.224, 1] does not belong to scale 1: black and white are 1.14e+03 "
        f"{APART}; write scale: 1/255, for a std of pixels from 0 to 1"
    ),
    "scale: 2": (
        f"4:27: input.scale 2 is wrong: black and white are 510 {APART}; write scale: 1/255 for values from 0 to 1"
    ),
    "scale: 1/65025": f"4:27: input.scale 1/65025 is wrong: black and white are 0.00392 {APART}",
    "resize: stretch, anchor: center": "4:52: input.anchor is for resize: letterbox, not stretch; leave it out",
    "resize: crop, pad: 0": "4:46: input.pad is for resize: letterbox, not crop; leave it out",
    "resize: stretch, pad: [0, 0, 0]": "4:49: input.pad is for resize: letterbox, not stretch; leave it out",
}


@pytest.mark.parametrize("keys", CONTRADICTIONS)
def test_contradicting_keys_of_the_input_are_refused(keys, tmp_path):
    (problem,) = problems(tmp_path, GOOD.replace("scale: 1/255", keys))
    assert problem.startswith(CONTRADICTIONS[keys])


def test_a_wrong_mean_and_a_wrong_std_are_two_problems(tmp_path):
    listed = problems(tmp_path, GOOD.replace("scale: 1/255", "scale: 1/255, mean: 127, std: 128"))
    assert [listed_text.split(" ")[1] for listed_text in listed] == ["input.mean", "input.std"]


def test_a_mean_that_is_no_number_is_a_single_problem(tmp_path):
    (problem,) = problems(tmp_path, GOOD.replace("scale: 1/255", "scale: 1/128, mean: [127, gray, 127]"))
    assert "input.mean must be a number, or a fraction such as 1/255, got 'gray'" in problem


@pytest.mark.parametrize("names", ["masks", "[]", "[masks, masks]", "[1]", "['']"])
def test_ignored_outputs_are_a_list_of_names(names, tmp_path):
    (problem,) = problems(tmp_path, GOOD + f"ignore_outputs: {names}\n")
    assert problem.startswith("6:17: ignore_outputs must be a list of names of outputs, each once, got ")


@pytest.mark.parametrize(("family", "refused"), [("yolov8", True), ("yolov8_obb", True), ("yunet", False)])
def test_keypoints_need_a_family_with_keypoints(family, refused, tmp_path):
    text = GOOD.replace("family: yolov8", f"family: {family}") + "keypoints: face\n"
    listed = problems(tmp_path, text) if refused else []
    assert [listed_text.partition(": ")[2] for listed_text in listed] == [
        f"keypoints is for families with keypoints, not for {family}; leave it out"
    ] * refused
    if not refused:
        assert load_card(write(tmp_path, text)).skeleton is not None


def test_a_card_has_a_display_name(tmp_path):
    shipped = shipped_models() / "demo.yaml"
    assert called(shipped) == "demo"
    assert called(write(tmp_path, shipped.read_text(), "demo.yaml")) == f"{tmp_path}/demo.yaml"
    assert called(write(tmp_path, shipped.read_text(), "own.yaml")) == f"{tmp_path}/own.yaml"


def test_an_empty_labels_file_is_refused(tmp_path):
    write(tmp_path, "\n \n", "names.txt")
    (text,) = problems(tmp_path, GOOD.replace("[car, person]", "names.txt"))
    assert text == f"5:9: labels file {tmp_path / 'names.txt'} is empty: it must have one class name per line"


def test_a_missing_card_is_reported(tmp_path):
    with pytest.raises(ModelError, match="there is no such file"):
        load_card(tmp_path / "none.yaml")


def test_a_family_of_another_task_is_refused(tmp_path):
    assert problems(tmp_path, GOOD.replace("task: detect", "task: embed")) == [
        "2:9: family yolov8 is for task: detect, but the card has task: embed; the families of embed: embedding",
        "5:1: labels are for classes, and the task embed has none: leave labels out",
    ]


def test_a_classifier_may_have_duplicate_class_names(tmp_path):
    text = GOOD.replace("detect", "classify").replace("yolov8", "logits").replace("[car, person]", "[crane, crane]")
    assert load_card(write(tmp_path, text)).labels == ("crane", "crane")


def test_tasks_without_classes_need_no_labels(tmp_path):
    text = GOOD.replace("labels: [car, person]\n", "").replace("detect", "embed").replace("yolov8", "embedding")
    assert load_card(write(tmp_path, text)).labels == ()


# ------------------------------------------------------------------------------------------------------ finding cards


@pytest.mark.parametrize("place", [".", "models"])
@pytest.mark.parametrize("name", ["net", "yolox-nano"])
def test_a_name_is_looked_up_beside_the_yaml_first(name, place, tmp_path):
    (tmp_path / place).mkdir(exist_ok=True)
    path = write(tmp_path / place, GOOD, f"{name}.yaml")
    assert find_card(name, tmp_path) == path


def test_a_name_is_looked_up_among_the_shipped_cards(tmp_path):
    assert find_card("yolox-nano", tmp_path) == shipped_models() / "yolox-nano.yaml"


def test_a_path_is_relative_to_the_yaml(tmp_path):
    (tmp_path / "cards").mkdir()
    path = write(tmp_path / "cards", GOOD)
    assert find_card("cards/net.yaml", tmp_path) == path
    assert find_card("cards/net", tmp_path) == path
    assert find_card(str(path), Path("/")) == path


def test_a_card_in_several_folders_is_listed_once(tmp_path):
    (tmp_path / "models").symlink_to(shipped_models())
    with pytest.raises(ModelError) as caught:
        find_card("5", tmp_path)
    assert str(caught.value).count("yolov8n-pose") == 1


def test_an_unknown_card_is_reported(tmp_path):
    with pytest.raises(ModelError) as caught:
        find_card("yolox-nan", tmp_path)
    text = str(caught.value)
    assert text.startswith("there is no model card yolox-nan.yaml in ")
    assert str(tmp_path / "models") in text
    assert str(shipped_models()) in text
    assert text.endswith("; did you mean 'yolox-nano'?")
    write(tmp_path, GOOD, "mine.yaml")
    write(tmp_path, "sources: {a: b.mp4}\n", "pipeline.yaml")
    with pytest.raises(ModelError, match=r"; known: mine, .*demo") as caught:
        find_card("zebra", tmp_path)
    assert "pipeline" not in str(caught.value).partition("known: ")[2]  # a pipeline beside the cards is none of them
    write(tmp_path, GOOD)
    with pytest.raises(ModelError, match=r"there is no card .*nett.yaml; did you mean 'net.yaml'\?"):
        find_card("nett.yaml", tmp_path)


def test_a_network_file_is_refused_as_a_card(tmp_path):
    with pytest.raises(
        ModelError,
        match=r"'a/net.onnx' is a network, not a card. model: a/net.onnx takes it as it is",
    ):
        find_card("a/net.onnx", tmp_path)


# ------------------------------------------------------------------------------------------------- the shipped cards


@pytest.mark.parametrize("path", list_cards(), ids=lambda path: path.stem)
def test_shipped_cards_load(path):
    card = load_card(path)
    assert card.license
    assert card.url or card.note or card.file.is_file()
    assert bool(card.url) == bool(card.sha256)


def test_cards_of_the_public_networks_are_shipped():
    names = {path.stem for path in list_cards()}
    assert names >= {"yolox-nano", "yolox-tiny", "yolox-s", "yolov8n", "deimv2-atto", "yunet"}


def test_builtin_label_lists_load():
    assert len(LABEL_LISTS["coco"]) == len(set(LABEL_LISTS["coco"])) == 80
    assert (LABEL_LISTS["coco"][0], LABEL_LISTS["coco"][79]) == ("person", "toothbrush")
    assert len(LABEL_LISTS["voc"]) == 20
    assert LABEL_LISTS["face"] == ("face",)


def test_the_checksum_of_yunet_is_that_of_the_published_file(test_data):
    from streamkit.models.network import sha256

    card = load_card(shipped_models() / "yunet.yaml")
    assert sha256(test_data / "models" / "yunet_n_dynamic.onnx") == card.sha256


# --------------------------------------------------------------------------------------------------------- key points

POSE = """\
task: pose
family: yolov8_pose
file: net.onnx
input: {size: [64, 64]}
labels: person
"""


def test_keypoints_are_given_by_name_or_as_a_list(tmp_path):
    coco = load_card(write(tmp_path, POSE + "keypoints: coco\n")).skeleton
    assert coco is not None
    assert (coco.names[0], coco.names[16], len(coco.names)) == ("nose", "right_ankle", 17)
    assert (11, 13) in coco.edges
    listed_skeleton = load_card(write(tmp_path, POSE + "keypoints: [head, tail]\nskeleton: [[tail, head]]\n")).skeleton
    assert listed_skeleton == Skeleton(("head", "tail"), ((1, 0),))
    assert load_card(write(tmp_path, POSE + "keypoints: [head, tail]\n")).skeleton == Skeleton(("head", "tail"))
    assert load_card(write(tmp_path, POSE)).skeleton is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "keypoints: cocos",
            "6:12: keypoints must be one of coco, face, halpe, wholebody, got 'cocos'; did you mean 'coco'?",
        ),
        ("keypoints: [a, a]", "6:12: keypoints must be a list of names, each once, got ['a', 'a']"),
        ("keypoints: [a, b]\nskeleton: [[a, c]]", "7:11: skeleton names the point 'c', which keypoints lacks"),
        ("keypoints: [a, b]\nskeleton: [a, b]", "7:11: skeleton must be a list of pairs of keypoints such as"),
        ("skeleton: [[a, b]]", "6:11: skeleton names the point 'a', which keypoints lacks"),
    ],
)
def test_invalid_keypoints_are_refused(text, problem, tmp_path):
    (listed_text,) = problems(tmp_path, POSE + text + "\n")
    assert listed_text.startswith(problem)


def test_the_selection_of_a_raw_detr_is_read(tmp_path):
    detr = GOOD.replace("yolov8", "detr")
    assert load_card(write(tmp_path, detr)).select == ""
    for select in ("top_k", "best_class", "softmax"):
        card = load_card(write(tmp_path, f"{detr}select: {select}\n"))
        assert (card.select, family_of(card)) == (select, family("detr").selecting(select))
    assert problems(tmp_path, f"{detr}select: topk\n") == [
        "6:9: select must be one of top_k, best_class, softmax, got 'topk'; did you mean 'top_k'?"
    ]
    assert problems(tmp_path, f"{GOOD}select: top_k\n") == [
        "6:9: select is for family: detr or detr_seg, not for yolov8"
    ]
    assert family_of(load_card(write(tmp_path, GOOD))) is family("yolov8")


READER = """\
task: read
family: ctc
file: net.onnx
input: {size: [128, 32]}
alphabet: "0123AB"
blank: -1
"""


def test_a_card_of_a_text_reader_is_read(tmp_path):
    card = load_card(write(tmp_path, READER))
    assert card.labels == tuple("0123AB")
    assert card.blank == -1
    (tmp_path / "keys.txt").write_text("0\n1\n \nÄ\n\n", encoding="utf-8")
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))  # longer than the name of a file
    for alphabet, expected in (
        ("keys.txt", ("0", "1", " ", "Ä")),
        ("[0, a]", ("0", "a")),
        ('"12"', ("1", "2")),
        (many, tuple(many)),
    ):
        text = READER.replace('"0123AB"', alphabet)
        assert load_card(write(tmp_path, text)).labels == expected


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('alphabet: "0123AB"\n', "", "the key 'alphabet' is missing"),
        ('"0123AB"', '"0123A0"', "alphabet must have each character once, got '0' twice"),
        ('"0123AB"', "keys.txt", "alphabet there is no file"),
        ('"0123AB"', "0123456789", "alphabet must be text: put quotes around it"),
        ("blank: -1", "blank: last", "blank must be a whole number such as 0, or -1 for the last, got 'last'"),
        ("blank: -1", "labels: [a]", "labels are for classes; the task read has an alphabet"),
        (
            "family: ctc",
            "family: logits",
            "logits is for task: classify, but the card has task: read; the families of read: ctc",
        ),
        ("task: read", "task: embed", "alphabet is for task: read, not for embed"),
    ],
)
def test_an_invalid_card_of_a_text_reader_is_refused(tmp_path, old, new, message):
    with pytest.raises(ModelError) as caught:
        load_card(write(tmp_path, READER.replace(old, new)))
    assert message in str(caught.value)


def test_a_card_pins_a_precision(tmp_path):
    assert load_card(write(tmp_path, GOOD)).precision == "auto"
    assert load_card(write(tmp_path, GOOD + "precision: f32\n")).precision == "f32"
    (problem,) = problems(tmp_path, GOOD + "precision: fp16\n")
    assert "must be one of auto, f32, tf32, f16, got 'fp16'" in problem
