"""`ask` in whole pipelines, against an endpoint over HTTP that is slow, fails or hangs."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.example_runs import SCHEMA
from support.sights import GREEN, LARGE, happen, scene

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Event
from streamkit.core.errors import ConfigError
from streamkit.core.sentences import sentence
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig
from streamkit.testing.kit import run_nodes

STREET = """
sources: {{street: samples/street.mp4}}
stages:
  detections: {{path: samples/street.truth.jsonl, keep_ids: true}}
  rule:
    rules:
      fallen: {{when: person and age_s > 0.5}}
  ask:
    url: {url}
    model: eye-7b
    when: rule.fallen
    of: detections.person
    prompt: Is this person injured?
    answer: {{injured: bool, why: str}}
    after: 200ms
    max_backoff: 50ms
    {more}
  hurt: {{stage: rule, when: 'attributes.injured == "yes"'}}
  told: {{stage: rule, when: 'event(ask.answered, answer.injured == true)'}}
  collect: {{}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch, root):
    (tmp_path / "samples").symlink_to(root / "samples")
    monkeypatch.chdir(tmp_path)


def events(outcome, stage):
    return [
        (record["frame"], event)
        for record in outcome.records["street"]
        for event in record["events"]
        if event["stage"] == stage
    ]


def test_the_end_of_a_file_waits_for_answers_of_a_slow_failing_endpoint(run_pipeline, vlm):
    vlm.delay_s = 0.15
    vlm.answers = lambda call, number: 503 if number == 3 else {"injured": number % 2 == 0, "why": "lies there"}
    outcome = run_pipeline(STREET.format(url=vlm.url, more=""), limit=120)
    assert outcome.code == 0
    records = outcome.records["street"]
    counts = outcome.report["counts"]
    assert [record["frame"] for record in records] == list(range(120)), "no frame is lost, and none is made"
    for record in records:
        assert [error.message for error in SCHEMA.iter_errors(record)] == []
    raised = {event["track_id"] for _, event in events(outcome, "rule") if event["kind"] == "raised"}
    answered = {event["track_id"]: (at, event) for at, event in events(outcome, "ask")}
    assert len(raised) > 5
    assert answered.keys() == raised, "each event has its answer, at the latest with the last frame"
    assert records[-1]["frame"] in {at for at, _ in answered.values()}
    assert len(vlm.calls) == counts["ask calls"] == len(raised) + 1
    assert counts["ask calls"] - counts["ask retries"] <= 1.02 * len(raised)
    assert (counts["ask retries"], counts["ask calls failed: HTTP 503"]) == (1, 1)
    assert vlm.peak_at_once == 2
    for track, (at, event) in answered.items():
        label = "yes" if event["data"]["answer"]["injured"] else "no"
        for record in records:
            for thing in record["objects"]:
                if thing.get("track_id") == track:
                    attribute = thing.get("attributes", {}).get("injured")
                    assert attribute == (None if record["frame"] < at else {"label": label, "score": None})
    hurt = {event["track_id"] for _, event in events(outcome, "hurt") if event["kind"] == "raised"}
    seen = {thing.get("track_id") for record in records for thing in record["objects"] if "attributes" in thing}
    assert hurt == {track for track in seen if answered[track][1]["data"]["answer"]["injured"]}
    assert hurt
    assert next(event["kind"] for _, event in events(outcome, "told")) == "raised"
    at, event = next(iter(answered.values()))
    text = sentence(Event(event["kind"], "ask", "street", at, 0.0, event["track_id"], event["data"]))
    assert text.startswith(f'Person {event["track_id"]} at street, asked "Is this person injured?": injured: ')


def test_a_hanging_endpoint_delays_no_frame(run_pipeline, vlm):
    vlm.delay_s = 3600.0
    more = "{drain_timeout: 300ms, queue: 4, parallel: 1}".strip("{}").replace(", ", "\n    ")
    outcome = run_pipeline(STREET.format(url=vlm.url, more=more), limit=120)
    assert outcome.code == 0
    assert len(outcome.records["street"]) == 120
    counts = outcome.report["counts"]
    raised = sum(event["kind"] == "raised" for _, event in events(outcome, "rule"))
    assert counts["questions dropped: queue full"] == raised - 4
    assert counts["questions given up: their source ended"] == 4
    assert events(outcome, "ask") == []
    assert [text for text in outcome.logged if "questions wait" in text] == [
        "ask: 4 questions wait for an answer; further ones are dropped and counted"
    ]
    vlm.delay_s = 0.0


def test_concurrent_calls_fall_back_without_a_response_format(run_pipeline, vlm):
    vlm.delay_s = 0.05
    vlm.knows_response_format = False
    outcome = run_pipeline(STREET.format(url=vlm.url, more="parallel: 2"), limit=120)
    answered = len(events(outcome, "ask"))
    assert answered == outcome.report["counts"]["questions answered"] > 5
    assert answered < len(vlm.calls) <= answered + 2
    assert sum("response_format" in call.body for call in vlm.calls) == len(vlm.calls) - answered


@pytest.mark.parametrize("per_source", [False, True])
def test_the_last_frames_leave_in_a_partial_batch(vlm, root, per_source):
    text = STREET.format(url=vlm.url, more="drain_timeout: 1h")
    text = text.replace("  collect: {}\n", "  jsonl: {path: all.jsonl}\n")
    running = PipelineRun(
        build(read_text(text, folder=root)), choose("cpu"), RunConfig(limit=90, per_source=per_source)
    )
    assert running.run() == 0
    lines = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert [line["frame"] for line in lines] == list(range(90))
    assert sum(event["kind"] == "answered" for line in lines for event in line["events"]) == len(vlm.calls) > 3


FAILS = """
from streamkit import FrameStage, stage

@stage("fails", reads=(), writes=())
class Fails(FrameStage):
    def process(self, frame):
        if frame.index == 58:
            raise ValueError("no")
"""


@pytest.mark.parametrize("batch", [1, 4])
def test_a_stage_that_fails_on_the_closing_frame_does_not_delay_the_end(vlm, tmp_path, batch):
    (tmp_path / "fails.py").write_text(FAILS)
    text = STREET.format(url=vlm.url, more="drain_timeout: 1h").replace("  rule:\n", "  fails: {}\n  rule:\n", 1)
    text = f"plugins: [fails.py]\nbatch: {{size: {batch}}}\n" + text.replace(
        "  collect: {}\n", "  jsonl: {path: all.jsonl}\n"
    )
    assert PipelineRun(build(read_text(text, folder=tmp_path)), choose("cpu"), RunConfig(limit=60)).run() == 1
    lines = [json.loads(line) for line in Path("all.jsonl").read_text().splitlines()]
    assert sum(event["kind"] == "answered" for line in lines for event in line["events"]) == len(vlm.calls) > 0


# ------------------------------------------------------------------------------------------------------------- privacy

HIDDEN = """
sources: {a: "test://?frames=2"}
stages:
  detect: {model: demo}
  track: {}
  door: {stage: line_counter, line: [[0, 0], [9, 9]]}
  draw: {%s, only: [none]}
  ask: {url: %s, model: eye, when: door.crossed, prompt: "?", answer: {injured: bool, why: str}, %s}
"""


def parts(text, root):
    graph = build(read_text(text, folder=root))
    return [graph.nodes["draw"]], [graph.nodes["draw"], graph.nodes["ask"]]


def textured():
    """Frames with fine stripes all over, and two people, one at the edge of the other's crop."""
    scene_frames = scene([(LARGE, GREEN, True)] * 3)
    rng = np.random.default_rng(5)
    for frame in scene_frames:
        luma = frame.surface.data[: frame.height]
        luma[...] = rng.integers(0, 2, luma.shape, np.uint8) * 180 + 30
        table = frame.tables["detect"]
        boxes = np.concatenate([table.xyxy, [[205, 60, 260, 200]]]).astype(np.float32)
        frame.tables["detect"] = type(table)(
            boxes, np.ones(2, np.float32), np.zeros(2, np.int32), track_id=np.array([7, 8]), labels=table.labels
        )
    happen(scene_frames[0])
    return scene_frames


def luma(image):
    return image.astype(float) @ (0.299, 0.587, 0.114)


@pytest.mark.parametrize(
    ("hide", "options", "rect"),
    [
        ("blur: [person]", "after: 0s, pad: 0.5", (80, 0, 240, 240)),
        ("pixelate: {zone: [[0, 0], [320, 0], [320, 240], [0, 240]]}", "after: 2s, images: 3", (104, 32, 216, 228)),
        ("pixelate: [person]", "capture: frame", (0, 0, 320, 240)),
    ],
)
def test_no_hidden_pixel_is_sent(vlm, root, hide, options, rect):
    draw, both = parts(HIDDEN % (hide, vlm.url, f"{options}, quality: 100"), root)
    clear = [frame.image() for frame in textured()]
    shown = [frame.image() for frame in run_nodes(draw, textured())]
    run_nodes(both, textured())
    (call,) = vlm.calls
    left, top, right, bottom = rect
    for image, before, after in zip(call.images, clear, shown, strict=False):
        before, after = (luma(picture[top:bottom, left:right]) for picture in (before, after))
        assert image.shape[:2] == after.shape
        sent = luma(image)
        hidden = np.abs(before - after) > 12
        assert hidden.mean() > 0.2
        assert np.abs(sent - after)[hidden].max() < 40, "what is sent is what draw has made"
        assert np.abs(sent - after)[hidden].mean() < 4
        assert np.abs(sent - before)[hidden].mean() > 30


def test_a_stage_above_the_hiding_stage_is_refused(root):
    text = HIDDEN.replace("  ask:", "  ask: {from: door,").replace("{from: door, {", "{from: door, ")
    with pytest.raises(ConfigError, match=r"ask would show what draw hides; write from: draw, .* or show_hidden: true"):
        build(read_text(text % ("blur: [person]", "http://127.0.0.1:1/v1", "after: 0s"), folder=root))


# --------------------------------------------------------------------------------------------------------------- check

CHECKED = """sources: {a: samples/street.mp4}
stages:
  detect: {model: demo}
  track: {}
  rule: {rules: {fallen: {when: person and height < 20}}}
  ask:
    url: http://127.0.0.1:8000/v1
    model: eye
    when: rule.fallen
    of: detect.person
    prompt: Is this person injured?
    answer: {injured: bool, why: str}
"""


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("    url: http://127.0.0.1:8000/v1\n", "", r"7:5: ask\.url is required: the endpoint, such as http://127"),
        ("    model: eye\n", "", r"7:5: ask\.model is required: the model's name at the endpoint"),
        ("    answer: {injured: bool, why: str}\n", "", r"7:5: ask\.answer is required"),
        ("injured: bool", "injured: yesno", r"ask: answer\.injured must be bool, int, float, str, or a list of words"),
        ("injured: bool", "injured: 5", r"12:23: ask\.answer\.injured must be text or a list, got 5"),
        ("Is this person injured?", "''", r"7:5: ask: prompt must not be empty"),
        ("rule.fallen", "rule.falen", r"9:11: ask: rule writes no event 'rule\.falen'; did you mean 'rule\.fallen'\?"),
        ("rule.fallen", "rules.fallen", r"9:11: ask: no stage writes the event 'rules\.fallen'; did you mean 'rule"),
        ("rule.fallen", "track", r"9:11: ask: track writes no events, so there is no 'track'"),
        ("detect.person", "detect.man", r"10:9: ask\.of: detect has no class 'man'; known: car, person, bike"),
        ("detect.person", "man", r"10:9: ask\.of: there is no stage 'man'; objects come from detect"),
        ("of: detect.person", "key_env: EYE_KEY", r"ask: key_env: the environment variable EYE_KEY is not set; set it"),
        ("of: detect.person", "key: sk-123", r"10:5: ask has no option 'key'; did you mean 'key_env'\?"),
        (
            "of: detect.person",
            "at_most: 20",
            r"10:14: ask\.at_most must be 1 to 10000 in a .*, got 20",
        ),
        ("  track: {}\n", "", r"ask reads track_id, which no earlier stage writes; put a tracker above it"),
    ],
)
def test_check_reports_problems_with_their_position(root, old, new, problem):
    assert old in CHECKED
    with pytest.raises(ConfigError, match=problem):
        build(read_text(CHECKED.replace(old, new, 1), folder=root))


def test_rules_can_use_the_attributes_and_their_values(root):
    config = read_text(CHECKED + '  r: {stage: rule, when: attributes.injured == "maybe"}\n', folder=root)
    with pytest.raises(ConfigError, match="injured is never 'maybe'; known: yes, no"):
        build(config)
    config = read_text(CHECKED + "  r: {stage: rule, when: attributes.injured == true}\n", folder=root)
    with pytest.raises(ConfigError, match=r'injured is a text and true is true or false; its values are "yes", "no"$'):
        build(config)
    config = read_text(
        CHECKED.replace("why: str", "people: int") + "  r: {stage: rule, when: people > 2}\n", folder=root
    )
    assert build(config).nodes["r"].options["above"].numbers == {"people"}


# --------------------------------------------------------------------------------------------------- several processes


@pytest.mark.long
def test_processes_share_the_budget(vlm, here, tmp_path):
    from support.example_runs import command_in_subprocess

    vlm.delay_s = 0.05
    for id_ in "ab":
        (tmp_path / f"{id_}.truth.jsonl").symlink_to("samples/street.truth.jsonl")
    (tmp_path / "p.yaml").write_text(
        f"""
device: {{use: cpu, processes: 2}}
sources: {{a: samples/street.mp4, b: samples/street.mp4}}
stages:
  detections: {{path: "{{source}}.truth.jsonl", keep_ids: true}}
  ask: {{url: "{vlm.url}", model: eye, of: detections, prompt: "?", answer: {{injured: bool, why: str}}, at_most: 9/h}}
  jsonl: {{path: "out/{{source}}.jsonl"}}
"""
    )
    command_in_subprocess("run", "p.yaml", "--report", "report.json", "--limit", 100)
    counts = json.loads((tmp_path / "report.json").read_text())["counts"]
    assert len(vlm.calls) == counts["ask calls"] == 9, "over both processes"
    assert counts["questions dropped: budget used up"] == counts["questions asked"] - 9
    both = [(tmp_path / "out" / f"{id_}.jsonl").read_text().count('"answered"') for id_ in "ab"]
    assert sum(both) == 9
