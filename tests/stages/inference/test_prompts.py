"""Prompts of a detector in a running pipeline: labels, changes without a lost frame, and what is refused."""

import shutil

import pytest
from support.cameras import going, pipeline, until

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import ConfigError
from streamkit.models.card import sample_video, shipped_models
from streamkit.runtime.control.graph_changes import alike, changed_settings

STAGES = "{detect: {model: %s, prompts: [person, red car], min_score: 0.01, top_k: 5}, track: {class_aware: true}}"


def text(model="demo-words", stages=STAGES):
    return f"batch: 2\nsources: {{a: {{uri: {sample_video()}, loop: true}}}}\nstages: {stages % model}"


def test_prompts_change_without_losing_a_frame():
    running, logged = pipeline(text())
    seen = []
    running.listen(lambda shown: seen.extend((f.index, f.tables["detect"]) for f, _ in shown))
    with going(running) as codes:
        until(lambda: len(seen) > 4)
        assert running.changeable("detect")["prompts"] == ["person", "red car"]
        running.set("detect.infer", {"prompts": ["van", "person"]})
        assert running.changeable("detect.postprocess")["prompts"] == ["van", "person"]
        until(lambda: {"van"} & set(seen[-1][1].label))
        since = len(seen)
        until(lambda: len(seen) > since + 4)
    assert logged == []
    report = running.report(codes[0])
    assert [index for index, _ in seen] == list(range(len(seen)))
    (source,) = report["sources"].values()
    assert source["frames"] == len(seen)
    assert "frames failed" not in report["counts"]
    detected = [[name for name, new in zip(t.label, predicted(t), strict=True) if not new] for _, t in seen]
    assert all(set(names) <= {"person", "red car"} or set(names) <= {"person", "van"} for names in detected)
    first = next(i for i, names in enumerate(detected) if "van" in names)
    last = max((i for i, names in enumerate(detected) if "red car" in names), default=0)
    assert last < first + 12  # each core has an instance, which switches by itself
    assert first > 4
    # a class keeps its number, which the tracker compares
    assert seen[0][1].labels == ("person", "red car")
    assert seen[-1][1].labels == ("person", "red car", "van")


def predicted(table):
    return table.extra["predicted"] if "predicted" in table.extra else [False] * len(table)


def test_invalid_new_prompts_change_nothing(tmp_path):
    for name in ("demo-words.yaml", "demo-words.onnx", "demo-words-text.onnx", "demo-words-tokenizer.json"):
        shutil.copy(shipped_models() / name, tmp_path / name)
    running, logged = pipeline(text(tmp_path / "demo-words.yaml"))
    seen = []
    running.listen(lambda shown: seen.extend(set(f.tables["detect"].label) for f, _ in shown))
    with going(running):
        until(lambda: len(seen) > 2)
        for prompts, message in (
            ([], "detect: demo-words finds what prompts name"),
            (["van", "Van"], "prompts has 'van' and 'Van', which are the same; remove one"),
            ("van", "prompts must be a list"),
        ):
            with pytest.raises(ConfigError, match=message):
                running.set("detect", {"prompts": prompts})
        with pytest.raises(ConfigError, match="prompts has no class 'person'"):
            running.set("detect", {"prompts": ["van"], "min_score": {"person": 0.5}})
        (tmp_path / "demo-words-text.onnx").unlink()
        running.set("detect", {"prompts": ["blue van"]})
        until(lambda: len(logged) > 0)
        since = len(seen)
        until(lambda: len(seen) > since + 2)
    assert "detect.infer: the new prompts are not used" in logged[0]
    assert set().union(*seen) <= {"person", "red car"}


def test_an_edit_of_prompts_does_not_rebuild_the_pipeline(tmp_path):
    rule = '{stage: rule, when: "count(person) > 3"}'
    stages = "{detect: {model: demo-words, prompts: [%s]}, track: {}, crowd: " + rule + "}"
    graphs = []
    for prompts in ("person", "person, van"):
        (tmp_path / "p.yaml").write_text(text(prompts, stages))
        graphs.append(build(read(tmp_path / "p.yaml")))
    assert alike(*graphs)
    new = {"prompts": ["person", "van"]}
    assert changed_settings(*graphs) == {"detect.infer": new, "detect.postprocess": new}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("model: demo, prompts: [car]", "and takes no prompts; leave prompts out"),
        ("model: demo-words", "demo-words finds what prompts name; add prompts"),
        ("model: demo-words, prompts: [car, ' ']", "prompts has an empty text"),
        ("model: demo-words, prompts: [car], labels: [car]", "prompts are the labels: leave labels out"),
        ("model: demo-words, prompts: [car], min_score: {bus: 0.5}", "prompts has no class 'bus'"),
        ("model: demo-words-crop, prompts: [car]", "detect needs a card with task: detect"),
    ],
)
def test_invalid_prompts_in_a_yaml_are_refused(options, message, tmp_path):
    (tmp_path / "p.yaml").write_text(f"sources: {{a: {sample_video()}}}\nstages: {{detect: {{{options}}}}}")
    with pytest.raises(ConfigError) as caught:
        build(read(tmp_path / "p.yaml"))
    assert message in str(caught.value)


def test_stages_below_use_the_prompts_as_labels(tmp_path):
    below = "track: {}, color: {stage: classify, model: color, of: detect.bus}"
    (tmp_path / "p.yaml").write_text(text("person", "{detect: {model: demo-words, prompts: [%s]}, " + below + "}"))
    with pytest.raises(ConfigError, match="detect has no class 'bus'"):
        build(read(tmp_path / "p.yaml"))
