"""A YAML as it is read: its stages and sources, what belongs to the runner, and what is added later."""

import sys
import time
from pathlib import Path

import pytest
from support.configs import ROOT, SMALL, _in_the_checkout, config, problems, with_stages  # noqa: F401  a fixture

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_source, read_text, source_entry
from streamkit.config.source_details import SourceDetails
from streamkit.core.errors import ConfigError


def test_a_pipeline_is_read():
    pipeline = config(
        "device: cpu\nbatch: {size: 8, max_wait: 100ms}\n"
        + SMALL.replace("{model: demo}", "{model: demo, min_score: 0.4}")
    )
    assert pipeline.problems == pipeline.warnings == []
    assert pipeline.device == "cpu"
    assert (pipeline.batch.size, pipeline.batch.max_wait) == (8, pytest.approx(0.1))
    assert [(s.id, s.type.name, s.options) for s in pipeline.sources] == [
        ("a", "source", {"uri": "samples/street.mp4"})
    ]
    detect, jsonl = pipeline.stages
    assert (detect.id, detect.inputs, detect.options["min_score"]) == ("detect", ["decode"], 0.4)
    assert detect.options["model"].name == "demo"
    assert (jsonl.inputs, jsonl.options) == (["detect"], {"path": "out/a.jsonl"})
    assert (jsonl.run.queue, jsonl.run.on_error, jsonl.run.instances) == (4, "skip", None)


def test_options_of_the_runner_are_not_passed_to_the_stage():
    pipeline = config(
        with_stages("mine: {stage: draw, from: decode, run: {queue: 9, on_error: stop, instances: 2}, fill: 0.5}")
    )
    (stage,) = pipeline.stages
    assert (stage.id, stage.type.name, stage.options) == ("mine", "draw", {"fill": 0.5})
    assert (stage.run.queue, stage.run.on_error, stage.run.instances) == (9, "stop", 2)


def test_options_of_the_whole_pipeline_are_read():
    pipeline = config("device: [cuda:0, cuda:1]\nwatchdog: 1min\nstate: var/state.db\n" + SMALL)
    assert pipeline.problems == []
    assert (pipeline.device, pipeline.watchdog_s, pipeline.state) == (["cuda:0", "cuda:1"], 60.0, Path("var/state.db"))
    (problem,) = config("state: var/\n" + SMALL).problems
    assert problem.text == "state must name a file, such as state.db, got 'var/'"


def test_batch_may_be_a_number():
    assert config("batch: 16\n" + SMALL).batch.size == 16
    assert [config(f"batch: {{size: {n}}}\n" + SMALL).batch.size for n in (1, 1024)] == [1, 1024]


def test_a_missing_video_gives_only_a_warning():
    pipeline = config("sources: {a: no/such.mp4}\nstages: {draw: {}}")
    assert pipeline.problems == []
    assert [str(w) for w in pipeline.warnings] == ["pipeline.yaml:1:14: source a: there is no file no/such.mp4"]


def test_each_video_of_a_folder_is_a_source(tmp_path):
    for name in ("b.mp4", "a10.mp4", "a2.mp4", "notes.txt"):
        (tmp_path / name).write_bytes(b"x")
    pipeline = config(f"sources: {{cam: {tmp_path}}}\nstages: {{draw: {{}}}}")
    assert [source.id for source in pipeline.sources] == ["cam/a2", "cam/a10", "cam/b"]
    assert config(f'sources: {{cam: "{tmp_path}/a*.mp4"}}\nstages: {{draw: {{}}}}').sources[1].id == "cam/a10"


def test_an_empty_folder_or_pattern_gives_only_a_warning(tmp_path):
    (tmp_path / "notes.txt").touch()
    texts = {
        tmp_path: "the folder contains no videos or images, among 1 files; put some there",
        f"{tmp_path}/*.mp4": "the pattern contains no videos or images; check its folder",
        f"{tmp_path}/%04d.jpg": "the pattern contains no videos or images; check its folder",
    }
    for uri, text in texts.items():
        pipeline = config(f'sources: {{cam: {{uri: "{uri}"}}}}\nstages: {{draw: {{}}}}')
        assert pipeline.problems == []
        assert [s.id for s in pipeline.sources] == ["cam"]
        assert len(pipeline.warnings) == 1
        assert str(pipeline.warnings[0]).startswith(f"pipeline.yaml:1:22: source cam: {uri}: {text}")


def test_a_folder_of_videos_and_images_is_a_problem(tmp_path):
    for name in ("a.mp4", "b.jpg"):
        (tmp_path / name).touch()
    (problem,) = problems(f"sources: {{cam: {tmp_path}}}\nstages: {{draw: {{}}}}")
    assert problem.startswith(f"1:16: source cam: {tmp_path} contains 1 videos and 1 images; select one kind")


def test_a_model_card_is_refused_as_a_pipeline(tmp_path):
    (problem,) = read(ROOT / "models" / "demo.yaml").problems
    assert problem.text == "this is a model card, not a pipeline; streamkit models check demo"
    card = tmp_path / "own.yaml"
    card.write_text((ROOT / "models" / "demo.yaml").read_text())
    (problem,) = read(card).problems
    assert problem.text.endswith(f"streamkit models check {card}")


def test_cards_and_plugins_are_looked_up_beside_the_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from streamkit import FrameStage, stage\n\n\n"
        "@stage('beside')\nclass Beside(FrameStage):\n    '''Do nothing.'''\n"
    )
    card = (ROOT / "models" / "demo.yaml").read_text().replace("demo.onnx", str(ROOT / "models" / "demo.onnx"))
    (tmp_path / "own.yaml").write_text(card)
    text = "plugins: mine.py\n" + with_stages("detect: {model: own}", "beside: {}")
    (tmp_path / "p.yaml").write_text(text)
    pipeline = read(tmp_path / "p.yaml")
    assert pipeline.problems == []
    assert pipeline.stages[0].options["model"].path == tmp_path / "own.yaml"
    assert pipeline.stages[1].type.name == "beside"


def test_environment_variables_and_their_defaults_are_expanded(monkeypatch):
    monkeypatch.setenv("STREAMKIT_TEST_SCORE", "0.7")
    monkeypatch.delenv("STREAMKIT_TEST_GONE", raising=False)
    text = with_stages("detect:", "  model: ${STREAMKIT_TEST_GONE:-demo}", "  min_score: ${STREAMKIT_TEST_SCORE}")
    pipeline = config(text)
    assert pipeline.problems == []
    assert pipeline.stages[0].options["min_score"] == 0.7
    texts = problems(text.replace(":-demo", ""))
    assert any(text.startswith("4:12: the environment variable STREAMKIT_TEST_GONE is not set") for text in texts)


def test_a_variable_may_be_read_from_a_file(monkeypatch, tmp_path):
    monkeypatch.delenv("STREAMKIT_TEST_SCORE", raising=False)
    monkeypatch.setenv("STREAMKIT_TEST_SCORE_FILE", str(tmp_path / "score"))
    (tmp_path / "score").write_text("0.7\n")
    text = with_stages("detect:", "  model: demo", "  min_score: ${STREAMKIT_TEST_SCORE}")
    assert config(text).stages[0].options["min_score"] == 0.7
    (tmp_path / "score").unlink()
    for written in (text, text.replace("SCORE}", "SCORE:-0.5}")):
        (problem,) = problems(written)
        assert problem.startswith(
            f"5:16: cannot read {tmp_path / 'score'}, which the environment variable STREAMKIT_TEST"
        )


# -------------------------------------------------------------------------------------------------------- faults


def test_a_fault_belongs_to_the_runner():
    pipeline = config(
        "sources:\n  a: {uri: samples/street.mp4, end: 4s, fault: {fail: 5s, seed: 7}}\n"
        "  b: {stage: test_pattern, fault: {away: {every: 1min, for: 3s, random: true}}}\n"
        "  c: {uri: samples/*.mp4, fault: {still: {at: [1, 2s], for: 500ms}}}\n  d: samples/street.mp4\n"
        "stages: {draw: {}}\n"
    )
    assert pipeline.problems == []
    faults = {source.id: source.fault for source in pipeline.sources}
    assert pipeline.sources[0].options == {"uri": "samples/street.mp4", "end": 4.0}
    assert (faults["a"].fail, faults["a"].seed) == ({"at": 5.0}, 7)
    assert faults["b"].away == {"every": 60.0, "for": 3.0, "random": True}
    assert faults["c/street"].still == {"at": [1.0, 2.0], "for": 0.5}
    assert faults["d"] is None


@pytest.mark.parametrize(
    ("text", "device", "processes"),
    [
        ("", "auto", None),
        ("device: cuda\n", "cuda", None),
        ("device: {use: cuda}\n", "cuda", None),
        ("device: {use: cuda, processes: auto}\n", "cuda", None),
        ("device: {use: 'cuda:1', processes: 3}\n", "cuda:1", 3),
        ("device: {processes: 2}\n", "auto", 2),
        ("device: {use: [cuda:0, cuda:1], processes: 2}\n", ["cuda:0", "cuda:1"], 2),
    ],
)
def test_a_device_may_have_a_number_of_processes(tmp_path, text, device, processes):
    path = tmp_path / "p.yaml"
    path.write_text(text + SMALL)
    pipeline = read(path)
    assert (pipeline.device, pipeline.processes, pipeline.problems) == (device, processes, [])
    other = read(path, device="cpu")
    assert (other.device, other.processes) == ("cpu", processes), "the command's device keeps the YAML's processes"
    for value, count in (("4", 4), ("auto", None)):
        pipeline = read(path, set_={"device.processes": value})
        assert (pipeline.device, pipeline.processes, pipeline.problems) == (device, count, [])
    pipeline = read(path, set_={"device.processes": "5"}, device="cuda:0,cuda:2")
    assert (pipeline.device, pipeline.processes) == (["cuda:0", "cuda:2"], 5)
    pipeline = read(path, set_={"device": "cuda:3"})
    assert (pipeline.device, pipeline.processes) == ("cuda:3", None), "the whole key is replaced"
    assert read(path, set_={"device.use": "cuda:4"}).device == "cuda:4"


def test_a_device_that_is_listed_twice_is_refused_on_the_command_line(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("device: {use: cpu, processes: 2}\n" + SMALL)
    (problem,) = read(path, device="cuda:0,cuda:0").problems
    assert str(problem).startswith(
        "--device: device.use must list each device once: the number of processes on a GPU is"
    )


def test_the_command_lines_device_overrides_the_files(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("device: cuda:3\n" + SMALL)
    assert read(path, device="cpu").device == "cpu"
    assert read(path).device == "cuda:3"
    assert read(path, device="cuda:0, cuda:1").device == ["cuda:0", "cuda:1"]
    assert read(path, set_={"device": "[cpu,cuda:1]"}).device == ["cpu", "cuda:1"]
    (problem,) = read(path, device="gpu").problems
    assert str(problem).startswith("--device: device must be auto, cpu, cuda")


# ------------------------------------------------------------------------------------ a source that is added later


def test_what_people_call_a_source_is_not_passed_to_it():
    details = "name: North gate, group: entrance, site: plant-a, tags: outdoor, order: 3"
    pipeline = config(SMALL.replace("samples/street.mp4", f"{{uri: samples/street.mp4, {details}}}"))
    assert pipeline.problems == []
    (source,) = pipeline.sources
    assert source.options == {"uri": "samples/street.mp4"}
    assert source.details == SourceDetails("North gate", "entrance", "plant-a", ["outdoor"], 3)
    assert source_entry(source)["name"] == "North gate"


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ("name: " + "x" * 81, "a: name must have at most 80 characters, got 81"),
        ('group: "a\\nb"', "a: group must be one line of printable characters, got 'a\\nb'"),
        ("tags: ['']", "a: a tag must not be empty; leave it out"),
        (f"tags: {list(range(1, 22))}", "a.tags.0 must be text"),
        ("order: first", "a.order must be a whole number"),
    ],
    ids=["name", "group", "empty tag", "numbers as tags", "order"],
)
def test_invalid_details_of_a_source_are_refused(details, message):
    (problem, *_) = config(SMALL.replace("samples/street.mp4", f"{{uri: samples/street.mp4, {details}}}")).problems
    assert problem.text.startswith(message)


def test_a_source_is_read_from_plain_values():
    config = read_text("sources: {a: 'test://'}\nstages: {jsonl: {path: out/x.jsonl}}")
    (source,) = read_source(config, "gate", {"uri": "rtsp://host/x", "timeout": "10s"})
    assert (source.id, source.type.name, source.options) == (
        "gate",
        "source",
        {"uri": "rtsp://host/x", "timeout": 10.0},
    )
    assert [source.id for source in config.sources] == ["a"]
    (short,) = read_source(config, "gate", "rtsp://host/x")
    assert short.options == {"uri": "rtsp://host/x"}


def test_a_source_from_plain_values_reads_no_environment(monkeypatch):
    monkeypatch.setenv("GATE_PASSWORD", "geheim")
    config = read_text("sources: {a: 'test://'}\nstages: {jsonl: {path: out/x.jsonl}}")
    (source,) = read_source(config, "gate", "rtsp://u:${GATE_PASSWORD}@host/x")
    assert "geheim" not in source.options["uri"]


def test_a_relative_path_is_beside_the_yaml_if_it_exists_there(tmp_path, monkeypatch):
    here = tmp_path / "here"
    there = tmp_path / "there"
    for folder in (here, there / "clips"):
        folder.mkdir(parents=True)
    for file in (here / "a.mp4", here / "both.mp4", there / "both.mp4", there / "b.mp4", there / "clips" / "c.mp4"):
        file.write_bytes(b"")
    monkeypatch.chdir(here)
    text = (
        "sources:\n  a: a.mp4\n  b: b.mp4\n  both: {uri: both.mp4}\n  c: clips/*.mp4\n  d: clips\n  none: none.mp4\n"
        "  e: {stage: source, uri: b.mp4}\n"
        f"  whole: {there}/b.mp4\n  link: rtsp://host/b.mp4\nstages: {{jsonl: {{path: '{{source}}.jsonl'}}}}\n"
    )
    config = read_text(text, folder=there)
    assert config.problems == []
    assert {source.id: source.options["uri"] for source in config.sources} == {
        "a": "a.mp4",
        "b": f"{there}/b.mp4",
        "both": f"{there}/both.mp4",
        "c/c": f"{there}/clips/c.mp4",
        "d/c": f"{there}/clips/c.mp4",
        "none": "none.mp4",
        "e": f"{there}/b.mp4",
        "whole": f"{there}/b.mp4",
        "link": "rtsp://host/b.mp4",
    }
    assert [str(warning) for warning in config.warnings] == [
        f"pipeline.yaml:4:15: source both: {there}/both.mp4 is taken, not both.mp4 in the working directory",
        "pipeline.yaml:7:9: source none: there is no file none.mp4",
    ]
    assert read_text(text, folder=here).sources[2].options["uri"] == "both.mp4"
    (source,) = read_source(config, "gate", "b.mp4")
    assert source.options["uri"] == f"{there}/b.mp4"


def test_a_number_that_is_not_a_file_is_a_webcam():
    config = read_text("sources: {a: '0', b: '1234'}\nstages: {jsonl: {path: 'out/{source}.jsonl'}}")
    assert [str(warning) for warning in config.warnings] == [
        "pipeline.yaml:1:14: source a: there is no file 0; webcam 0 is the device /dev/video0",
        "pipeline.yaml:1:22: source b: there is no file 1234",
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"uri": "rtsp://host/x", "timeot": 3}, "did you mean 'timeout'"),
        ({"uri": "rstp://host/x"}, "rtsp"),
        ({"uri": 3}, "needs a URI as text"),
        ({}, "needs a URI"),
        (None, "needs a URI"),
        ([1], "needs a URI"),
        ({"stage": "nothing"}, "unknown stage 'nothing'"),
    ],
)
def test_an_invalid_source_from_plain_values_is_refused(value, words):
    config = read_text("sources: {a: 'test://'}\nstages: {jsonl: {path: out/x.jsonl}}")
    with pytest.raises(ConfigError, match=words):
        read_source(config, "gate", value)
    assert not config.problems


@pytest.mark.parametrize(
    "source",
    [
        "{uri: rtsp://h/%d, fps: 5}",
        "no/such/%d.mp4",
        "${NO_SUCH_VARIABLE}",
        "{uri: rtsp://h/%d, ever: 2}",
        "{stage: test_pattern, uri: 'test://'}",
    ],
)
def test_checking_time_is_linear_in_the_number_of_sources(source, tmp_path):
    def calls(count: int) -> int:
        lines = [f"  cam{i}: " + (source % i if "%d" in source else source) for i in range(count)]
        path = tmp_path / "many.yaml"
        path.write_text("\n".join(["sources:", *lines, "stages:", "  jsonl: {path: a.jsonl}", ""]))
        call_count = 0

        def count_call(*_: object) -> None:
            nonlocal call_count
            call_count += 1

        sys.setprofile(count_call)
        try:
            config = read(path)
        finally:
            sys.setprofile(None)
        assert len(config.sources) + len(config.problems) == count
        return call_count

    calls(2)  # what is read once
    few = calls(100)
    more = calls(200)
    many = calls(400)
    assert many - more <= 2.02 * (more - few)
    assert (many - more) / 200 < 1500


def test_ten_thousand_sources_are_checked_quickly(tmp_path):
    path = tmp_path / "many.yaml"
    lines = [f"  cam{i}: {{uri: rtsp://h/{i}}}" for i in range(10_000)]
    path.write_text("\n".join(["sources:", *lines, "stages:", "  jsonl: {path: a.jsonl}", ""]))
    began = time.process_time()
    assert build(read(path)).sources[-1].id == "cam9999"
    assert time.process_time() - began < 4  # 0.5 s on a quiet machine; 15 s where each source costs what its kind does


def read_with(tmp_path, **values):
    path = tmp_path / "p.yaml"
    path.write_text(SMALL)
    return read(path, set_={name.replace("__", "."): value for name, value in values.items()})


def test_set_replaces_and_adds(tmp_path):
    pipeline = read_with(
        tmp_path,
        stages__detect__min_score="0.5",
        stages__detect__labels="[car]",
        device="cpu",
        batch="3",
        sources__b="samples/street.mp4",
        sources__a__loop="2",
        sources__a__fault__fail="5s",
        stages__jsonl__run__on_error="stop",
    )
    assert pipeline.problems == []
    assert pipeline.stages[0].options["min_score"] == 0.5
    assert pipeline.stages[0].options["labels"] == ["car"]
    assert pipeline.stages[1].run.on_error == "stop"
    assert (pipeline.device, pipeline.batch.size) == ("cpu", 3)
    assert [source.id for source in pipeline.sources] == ["a", "b"]
    assert pipeline.sources[0].options == {"uri": "samples/street.mp4", "loop": 2}
    assert pipeline.sources[0].fault.fail == {"at": 5.0}


def test_set_adds_a_fault_to_a_source_given_as_an_address(tmp_path):
    pipeline = read_with(tmp_path, sources__a__fault__freeze="{at: 1s, for: 2s}")
    assert pipeline.problems == []
    assert pipeline.sources[0].options == {"uri": "samples/street.mp4"}
    assert pipeline.sources[0].fault.freeze == {"at": 1.0, "for": 2.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"stages__detct__min_score": "1"},
            "--set: stages.detct.min_score: there is no 'detct'; did you mean 'detect'?",
        ),
        (
            {"stage__detect__min_score": "1"},
            "--set: stage.detect.min_score: there is no 'stage'; did you mean 'stages'?",
        ),
        ({"stages__jsonl__rn__on_error": "stop"}, "jsonl has no option 'rn'"),
        ({"stages__detect__min_scor": "1"}, "detect has no option 'min_scor'; did you mean 'min_score'?"),
        ({"stages__detect__min_score": "two"}, "--set stages.detect.min_score: detect.min_score must be"),
        ({"device__x": "1"}, "--set device.x: device has no option 'x'; known: use, processes"),
        ({"sources__a__uri__x": "1"}, "sources.a.uri is not a mapping, so x cannot be set in it"),
        ({"stages__detect__model__x": "1"}, "stages.detect.model is not a mapping, so x cannot be set in it"),
        ({"devise": "cpu"}, "unknown key 'devise'; did you mean 'device'?"),
    ],
)
def test_invalid_values_of_set_are_reported(tmp_path, values, message):
    texts = [str(problem) for problem in read_with(tmp_path, **values).problems]
    assert len(texts) == 1
    assert message in texts[0]


@pytest.mark.parametrize("where", ["clips", "clips/*.mp4"])
@pytest.mark.parametrize("entry", ["{{uri: {where}, every: 2}}", "{where}"])
def test_a_source_of_several_files_names_its_file(tmp_path, where, entry):
    (tmp_path / "clips").mkdir()
    for name in ("one.mp4", "two.mp4"):
        (tmp_path / "clips" / name).touch()
    source_yaml = entry.format(where=f"{tmp_path}/{where}")
    config = read_text(f"sources: {{c: {source_yaml}}}\nstages: {{jsonl: {{path: x}}}}\n")
    assert [source.id for source in config.sources] == ["c/one", "c/two"]
    for source in config.sources:
        (again,) = read_source(config, source.id, source_entry(source))
        assert (again.id, again.options) == (source.id, source.options)
        assert again.options["uri"] == f"{tmp_path}/clips/{source.id[2:]}.mp4"
