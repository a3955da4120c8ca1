"""What makes a result another one, and what does not."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.dataset_runs import PLAIN, ROOT, graph_of, settings

from streamkit.batch.identity import differences, file_key, pipeline_identity, pipeline_key
from streamkit.batch.job import FrameSelection, VideoFile
from streamkit.core.errors import ConfigError, ModelError

PLUGIN = '''
from _helper import NAME
from streamkit import FrameStage, stage

@stage("mine", reads="detections", writes="events")
class Mine(FrameStage):
    """Emit."""

    def process(self, frame):
        frame.emit(NAME)
'''


def identity(batch_settings):
    return pipeline_identity(graph_of(batch_settings), batch_settings)


def key(batch_settings):
    return pipeline_key(identity(batch_settings))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("a/{source}", "b/{source}"),
        PLAIN.replace("draw: {}", "draw: {thickness: 4}").replace("device: cpu", "batch: 4"),
        "stages:\n  detect:\n    model: demo\n  csv: {path: x.csv}\n",
        "sources: {x: nowhere.mp4}\nstages:\n  detect: {model: demo}\n",
    ],
    ids=["other paths", "other drawing, device and batch", "other sinks", "sources"],
)
def test_options_without_effect_on_results_do_not_change_the_key(tmp_path, text):
    assert key(settings(tmp_path / "a", PLAIN)) == key(settings(tmp_path / "b" / "c", text))


@pytest.mark.parametrize(
    ("text", "formats", "look", "difference"),
    [
        (
            PLAIN.replace("model: demo", "model: demo, min_score: 0.6"),
            ["parquet"],
            FrameSelection(),
            "stages.detect.min_score is 0.6 and was not set",
        ),
        (PLAIN, ["parquet", "csv"], FrameSelection(), "formats was parquet and is csv, parquet"),
        (PLAIN, ["parquet"], FrameSelection(every=2), "selection.every was 1 and is 2"),
        (PLAIN.replace("  draw", "  track: {}\n  draw"), ["parquet"], FrameSelection(), "stages.track is new"),
    ],
    ids=["option", "format", "look", "stage"],
)
def test_differences_that_change_results_are_named(tmp_path, text, formats, look, difference):
    before = settings(tmp_path / "a", PLAIN)
    after = settings(tmp_path / "b", text, *formats, look=look)
    assert key(before) != key(after)
    assert difference in differences(identity(before), identity(after))


def test_an_override_counts_as_the_value_it_sets(tmp_path):
    by_hand = settings(tmp_path / "a", PLAIN.replace("model: demo", "model: demo, min_score: 0.6"))
    before = settings(tmp_path / "b", PLAIN)
    override = dataclasses.replace(before, overrides=(("stages.detect.min_score", "0.6"),))
    assert key(override) == key(by_hand) != key(before)


def test_drawing_options_count_only_if_videos_are_written(tmp_path):
    other = PLAIN.replace("draw: {}", "draw: {thickness: 4}")
    first = settings(tmp_path / "a", PLAIN, "video")
    second = settings(tmp_path / "b", other, "video")
    assert differences(identity(first), identity(second)) == ["stages.draw.thickness is 4 and was not set"]


def custom_model(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "models").glob("demo.*"):
        (folder / file.name.replace("demo.yaml", "mine.yaml")).write_bytes(file.read_bytes())
    return PLAIN.replace("model: demo", "model: mine")


def test_a_changed_network_or_card_is_noticed(tmp_path):
    batch_settings = settings(tmp_path, custom_model(tmp_path))
    first = identity(batch_settings)
    moved = tmp_path / "elsewhere"
    assert key(settings(moved, custom_model(moved))) == pipeline_key(first)
    card = tmp_path / "mine.yaml"
    card.write_text(re.sub(r"iou: .*", "iou: 0.33", card.read_text()))
    changes = differences(first, identity(batch_settings))
    assert changes == ["models.mine.iou was 0.7 and is 0.33"]
    network = next(tmp_path.glob("*.onnx"))
    network.write_bytes(network.read_bytes() + b"\0")
    assert any(change.startswith("models.mine.sha256 was ") for change in differences(first, identity(batch_settings)))
    network.unlink()
    with pytest.raises((ModelError, ConfigError), match=network.name):
        identity(batch_settings)


def test_a_changed_blank_of_a_text_reader_is_noticed(tmp_path):
    for file in (ROOT / "models").glob("plates.*"):
        (tmp_path / file.name.replace("plates.yaml", "mine.yaml")).write_bytes(file.read_bytes())
    batch_settings = settings(
        tmp_path, PLAIN.replace("  draw", "  plate: {stage: read, model: mine, of: detect}\n  draw")
    )
    first = identity(batch_settings)
    card = tmp_path / "mine.yaml"
    card.write_text(card.read_text().replace("blank: 0", "blank: -1"))
    assert differences(first, identity(batch_settings)) == ["models.mine.blank was 0 and is -1"]


@pytest.mark.parametrize(
    "rule",
    [
        "when: 'class in file(\"known.txt\")'",
        "when: score > 0.5, clear: 'class in file(\"known.txt\")'",
        "rules: {a: {when: '!(class in file(\"known.txt\")) for 2s'}}",
    ],
)
def test_a_changed_list_of_a_condition_is_noticed(tmp_path, rule):
    listed = tmp_path / "known.txt"
    listed.write_text("car\n")
    batch_settings = settings(
        tmp_path, PLAIN.replace("  draw", f"  track: {{}}\n  watch: {{stage: rule, {rule}}}\n  draw")
    )
    first = identity(batch_settings)
    assert list(first["lists"]) == ["known.txt"]
    listed.write_text("car\nbus\n")
    (change,) = differences(first, identity(batch_settings))
    assert change.startswith("lists.known.txt was ")


def test_a_changed_plugin_or_module_beside_it_is_noticed(tmp_path, monkeypatch):
    def with_plugin(folder, helper='NAME = "found"\n', plugin=PLUGIN):
        folder.mkdir()
        (folder / "mine.py").write_text(plugin)
        (folder / "_helper.py").write_text(helper)
        text = PLAIN.replace("  draw", "  mine: {}\n  draw").replace("device: cpu", "plugins: [mine.py]")
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("_helper", None)
        return identity(settings(folder, text))

    def changed_files(before, after):
        return [text.split(" ")[0].split("/")[-1] for text in differences(before, after)]

    first = with_plugin(tmp_path / "plug")
    assert sorted(name.split("/")[1] for name in first["plugins"]) == ["_helper.py", "mine.py"]
    for number, (change, names) in enumerate({"plugin": ["mine.py"], "helper": ["_helper.py"]}.items()):
        (tmp_path / str(number)).mkdir()
        text = {"plugin": PLUGIN, "helper": 'NAME = "found"\n'}[change] + "# changed\n"
        assert changed_files(first, with_plugin(tmp_path / str(number) / "plug", **{change: text})) == names


def test_the_key_is_the_same_in_every_process(tmp_path):
    batch_settings = settings(tmp_path, PLAIN)
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from support.dataset_runs import *; from streamkit.batch.identity import *; from pathlib import Path\n"
        f"s = BatchSettings(Path({str(batch_settings.pipeline)!r}), (), Path('out'), ('parquet',), FrameSelection())\n"
        "print(pipeline_key(pipeline_identity(graph_of(s), s)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert out.stdout.strip() == key(batch_settings)


SET_PLUGIN = """
from typing import Annotated
from streamkit import FrameStage, stage

@stage("watch", reads="detections")
class Watch(FrameStage):
    'Watch.'

    names: Annotated[frozenset[str], "what is watched"]

    def process(self, frame):
        pass
"""


def test_set_options_have_a_fixed_order(tmp_path):
    (tmp_path / "watch.py").write_text(SET_PLUGIN)
    names = [f"name {number}" for number in range(40)]

    def watched(listed):
        text = PLAIN.replace("  draw", f"  watch: {{names: {json.dumps(listed)}}}\n  draw")
        return identity(settings(tmp_path, text.replace("device: cpu", "plugins: [watch.py]")))

    assert watched(names)["stages"]["watch"]["names"] == sorted(names)
    assert pipeline_key(watched(names)) == pipeline_key(watched(names[::-1]))


def test_an_identity_is_plain_json(tmp_path):
    description = identity(settings(tmp_path, PLAIN, "parquet", "video"))
    assert json.loads(json.dumps(description)) == description


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("2026-08-01/gate.mp4", "gate"),
        ("a b/Straße (2).final.mkv", "Stra-e-2-final"),
        (".mp4", "mp4"),
        ("监控.mp4", "video"),
        ("x" * 300 + ".mp4", "x" * 60),
        ("-rf.mp4", "rf"),
        ("bad\udcff.mp4", "bad"),
    ],
)
def test_a_files_key_is_a_valid_name_on_every_file_system(name, stem):
    key_text = file_key(VideoFile("u", name, 1, "1"), "0" * 16)
    assert key_text.rpartition("-")[0] == stem
    assert len(key_text.rpartition("-")[2]) == 16
    assert key_text.isascii()


def test_a_files_key_depends_on_name_size_version_and_pipeline():
    file = VideoFile("u", "a/x.mp4", 1, "1")
    changes = [{"name": "b/x.mp4"}, {"size": 2}, {"version": "2"}]
    keys = {file_key(dataclasses.replace(file, **change), "p") for change in [{}, *changes]} | {file_key(file, "q")}
    assert len(keys) == 5
    assert file_key(dataclasses.replace(file, uri="elsewhere/x.mp4"), "p") in keys
