from pathlib import Path

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.testing.yaml_tests import read_tests, run_tests

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """\
plugins: [plugins]
sources: {street: street.mp4, gate: gate.mp4}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  csv: {path: out/all.csv}
  crossing: {stage: tripwire, line: [[100, 200], [100, 100]]}
  busy: {stage: count_objects, more_than: 1}
  draw: {}
  all: {stage: jsonl, from: [busy, draw], path: out/all.jsonl}
tests:
"""
INPUT = "given: [{xyxy: [[75, 120, 85, 150]], track_id: [7]}, {xyxy: [[115, 120, 125, 150]], track_id: [7]}]"
IN = "events: [{kind: crossed, track_id: 7, data: {direction: in}}]"


def run(tests, pipeline=PIPELINE):
    report = []
    code = run_tests(read_text(pipeline + tests, folder=ROOT), report.append)
    return code, report


def yaml_test(*lines):
    return "  - " + "\n    ".join(lines) + "\n"


def problems(tests, pipeline=PIPELINE):
    with pytest.raises(ConfigError) as caught:
        run(tests, pipeline)
    return [str(problem) for problem in caught.value.problems]


def test_a_passing_test_is_reported():
    assert run(yaml_test("name: in", "insert_at: crossing", INPUT, f"expect: {{{IN}}}")) == (
        0,
        ["ok    in", "1 of 1 tests passed"],
    )


def test_a_failing_test_shows_its_position_expected_and_actual_values():
    out = "expect: {events: [{kind: crossed, data: {direction: out}}], count: 3}"
    code, report = run(
        yaml_test("name: in", "insert_at: crossing", INPUT, f"expect: {{{IN}}}")
        + yaml_test("name: out", "insert_at: crossing", INPUT, out)
    )
    assert code == 1
    assert report == [
        "ok    in",
        "FAIL  out (pipeline.yaml:16:5)",
        "      events: expected [{kind: crossed, data: {direction: out}}]",
        "              got      "
        "[{kind: crossed, stage: crossing, source: street, frame: 1, track_id: 7, data: {direction: in}}]",
        "      count: expected 3, got 2",
        "1 of 2 tests passed",
    ]


@pytest.mark.parametrize(
    ("expect", "passes"),
    [
        ("events: [{}]", True),
        ("events: []", False),
        ("events: [{}, {}]", False),
        ("events: [{kind: crossed, stage: crossing, source: street, frame: 1}]", True),
        ("events: [{stage: track}]", False),
        ("events: [{frame: 0}]", False),
        ("events: [{track_id: 8}]", False),
        ("events: [{data: {speed: 1}}]", False),
        ("count: 2", True),
        ("count: [1, 1]", True),
        ("count: 1", False),
        ("count: [2, 0]", False),
        ("objects: [{}, {}]", True),
        ("objects: [{track_id: [7]}, {track_id: [7], xyxy: [[115.00001, 120, 125, 150]]}]", True),
        ("objects: [{track_id: [7]}, {track_id: [7], xyxy: [[115.1, 120, 125, 150]]}]", False),
        ("objects: [{}, {track_id: []}]", False),
        ("objects: [{score: [1]}, {label: [car]}]", True),
        ("objects: [{}, {label: [bike]}]", False),
        ("objects: [{extra: {speed: [1]}}, {}]", False),
    ],
)
def test_only_named_fields_are_compared(expect, passes):
    code, report = run(yaml_test("name: x", "insert_at: crossing", INPUT, f"expect: {{{expect}}}"))
    assert (code == 0) is passes, report


def test_a_chain_runs_up_to_extract_from_skipping_sinks_and_branches():
    tests = yaml_test(
        "name: chain",
        "insert_at: track",
        "extract_from: busy",
        "given:",
        "  - {label: [bike, car], xyxy: [[70, 120, 110, 150], [0, 0, 9, 9]]}",
        "  - {label: [bike], xyxy: [[85, 120, 125, 150]]}",
        "  - {}",
        "expect:",
        "  events:",
        "    - {kind: crowded, stage: busy, frame: 0}",
        "    - {kind: crossed, stage: crossing, frame: 1, track_id: 0}",
        "    - {kind: cleared, stage: busy, frame: 2}",
        "  objects: [{track_id: [0, 1], label: [bike, car]}, {track_id: [0]}, {}]",
        "  count: [2, 1, 0]",
    )
    code, report = run(tests)
    assert code == 0, report


def test_a_merged_branch_counts_events_once():
    pipeline = PIPELINE.replace("tests:", "  meet: {stage: count_objects, from: [busy, draw], more_than: 1}\ntests:")
    tests = yaml_test(
        "name: meet",
        "insert_at: busy",
        "extract_from: meet",
        "given: [{xyxy: [[0, 0, 9, 9], [0, 0, 9, 9]]}]",
        "expect: {events: [{stage: busy, kind: crowded}, {stage: meet, kind: crowded}], count: [2]}",
    )
    code, report = run(tests, pipeline)
    assert code == 0, report


def test_sources_sizes_and_times_may_be_given():
    input_yaml = (
        "given: [{source: gate, width: 64, height: 48, pts_s: 3, xyxy: [[75, 120, 85, 150]], track_id: [7]},"
        " {source: street, xyxy: [[115, 120, 125, 150]], track_id: [7]},"
        " {source: gate, xyxy: [[115, 120, 125, 150]], track_id: [7]}]"
    )
    code, report = run(
        yaml_test("name: x", "insert_at: crossing", input_yaml, "expect: {events: [{source: gate, frame: 1}]}")
    )
    assert code == 0, report


def test_a_frame_without_a_size_has_that_of_the_one_before_or_640x360():
    input_yaml = (
        "given: [{xyxy: [[9, 9, 9, 9]]}, {width: 64, height: 48}, {},"
        " {source: gate, xyxy: []}]"  # of another source, whose first frame it is; a box may be a point
    )
    config = read_text(
        PIPELINE + yaml_test("name: x", "insert_at: busy", input_yaml, "expect: {count: 1}"), folder=ROOT
    )
    (test,) = read_tests(build(config))
    assert [(frame.width, frame.height) for frame in test.frames] == [(640, 360), (64, 48), (64, 48), (640, 360)]


def test_a_whole_detector_can_run_on_plain_images():
    test = yaml_test(
        "name: nothing there", "insert_at: detect", "given: [{}]", "expect: {objects: [{label: []}], count: 0}"
    )
    assert run(test)[0] == 0


def test_a_stage_that_raises_fails_its_test(tmp_path):
    (tmp_path / "bad.py").write_text(
        "from streamkit import FrameStage, stage\n\n\n@stage('bad')\nclass Bad(FrameStage):\n"
        "    '''Raise.'''\n\n    def process(self, frame):\n        raise ValueError('no such thing')\n"
    )
    text = "plugins: bad.py\nsources: {a: a.mp4}\nstages: {bad: {}}\ntests:\n"
    text += yaml_test("name: x", "insert_at: bad", "given: [{}]", "expect: {count: 0}")
    report = []
    assert run_tests(read_text(text, folder=tmp_path), report.append) == 1
    assert report[1] == "      bad failed on a frame 0 (0.00 s): ValueError: no such thing (bad.py:9)"


def test_missing_tests_are_reported():
    with pytest.raises(ConfigError, match=r"pipeline\.yaml has no tests; write some under tests:"):
        run("  []\n")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["name: x", "insert_at: crossing", INPUT], "12:5: test.expect is required: the expected output"),
        (
            ["insert_at: crossing", INPUT, "expect: {count: 2}"],
            "12:5: test.name is required: name of the test, for its report",
        ),
        (["name: 5", "insert_at: crossing", INPUT, "expect: {count: 2}"], "12:11: test.name must be text, got 5"),
        (
            ["name: x", "insert_at: crosing", INPUT, "expect: {count: 2}"],
            "13:16: insert_at: there is no stage 'crosing'; did you mean 'crossing'?",
        ),
        (
            ["name: x", "insert_at: all", INPUT, "expect: {count: 2}"],
            "13:16: insert_at: all writes files; name a stage that makes objects or events",
        ),
        (
            ["name: x", "insert_at: busy", "extract_from: crossing", INPUT, "expect: {count: 2}"],
            "14:19: extract_from: crossing does not come after busy",
        ),
        (
            ["name: x", "insert_at: crossing", "givn: []", INPUT, "expect: {count: 2}"],
            "14:5: test has no option 'givn'; did you mean 'given'?",
        ),
        (
            ["name: x", "insert_att: crossing", INPUT, "expect: {count: 2}"],
            "13:5: test has no option 'insert_att'; did you mean 'insert_at'?",
        ),
        (
            ["name: x", "insert_at: crossing", "givn: [{}]", "expect: {count: 2}"],
            "14:5: test has no option 'givn'; did you mean 'given'?",
        ),
        (["name: x", "insert_at: crossing", "given: []", "expect: {count: 2}"], "14:12: given has no frame"),
        (
            ["name: x", "insert_at: crossing", "given: 3", "expect: {count: 2}"],
            "14:12: test.given must be a list, got 3",
        ),
        (
            ["name: x", "insert_at: crossing", "given: [{track_id: [7], xyxi: []}]", "expect: {count: 2}"],
            "14:29: test.given.0 has no option 'xyxi'; did you mean 'xyxy'?",
        ),
        (
            ["name: x", "insert_at: crossing", "given: [{track_id: [7]}]", "expect: {count: 2}"],
            "14:13: test.given.0 needs xyxy: [[x1, y1, x2, y2]], a box for each object",
        ),
        (
            [
                "name: x",
                "insert_at: crossing",
                "given: [{xyxy: [[1, 2, 3, 4]], track_id: [7, 8]}]",
                "expect: {count: 2}",
            ],
            "14:13: test.given.0 has columns of different lengths: xyxy 1, track_id 2; give a value for each object",
        ),
        (
            ["name: x", "insert_at: crossing", "given: [{xyxy: [[9, 2, 3, 4]], track_id: [7]}]", "expect: {count: 2}"],
            "14:13: test.given.0 needs boxes x1, y1, x2, y2 with x1 <= x2 and y1 <= y2",
        ),
        (
            ["name: x", "insert_at: crossing", "given: [{xyxy: [[1, 9, 3, 4]], track_id: [7]}]", "expect: {count: 2}"],
            "14:13: test.given.0 needs boxes x1, y1, x2, y2 with x1 <= x2 and y1 <= y2",
        ),
        (
            [
                "name: x",
                "insert_at: crossing",
                "given: [{xyxy: [[1, 2, 3, 4]], track_id: [car]}]",
                "expect: {count: 2}",
            ],
            "14:47: test.given.0.track_id.0 must be a whole number, got 'car'",
        ),
        (
            [
                "name: x",
                "insert_at: crossing",
                "given: [{xyxy: [[1, 2, 3, 4]], track_id: [1], score: [2]}]",
                "expect: {count: 2}",
            ],
            "14:59: test.given.0.score.0 must be 0 to 1, got 2",
        ),
        (
            ["name: x", "insert_at: crossing", "given: [{xyxy: [[1, 2, 3, 4]]}]", "expect: {count: 2}"],
            "14:12: given: crossing reads track_id; write it with the boxes, as in track_id: [1]",
        ),
        (
            ["name: x", "insert_at: detect.infer", "given: [{}]", "expect: {count: 2}"],
            "13:16: insert_at: detect.infer reads tensor, which a test cannot give; begin at an earlier stage",
        ),
        (
            ["name: x", "insert_at: busy", "given: [{xyxy: [[1, 2, 3, 4]], label: [caar]}]", "expect: {count: 2}"],
            "14:44: given.label: demo has no class 'caar'; did you mean 'car'?",
        ),
        (
            ["name: x", "insert_at: crossing", INPUT, "expect: {}"],
            "15:13: test.expect needs at least one of events, objects, count",
        ),
        (
            ["name: x", "insert_at: crossing", INPUT, "expect: {event: []}"],
            "15:14: test.expect has no option 'event'; did you mean 'events'?",
        ),
        (
            ["name: x", "insert_at: crossing", INPUT, "expect: {events: [{kin: crossed}]}"],
            "15:24: test.expect.events.0 has no option 'kin'; did you mean 'kind'?",
        ),
        (
            ["name: x", "insert_at: crossing", INPUT, "expect: {events: [{stage: crosing}]}"],
            "15:31: expect.events.stage: there is no stage 'crosing'; did you mean 'crossing'?",
        ),
        (
            ["name: x", "insert_at: crossing", INPUT, "expect: {objects: [{}]}"],
            "15:23: expect.objects must have an entry for each of the 2 frames given, got 1",
        ),
        (
            ["name: x", "insert_at: crossing", INPUT, "expect: {count: [1, 1, 1]}"],
            "15:21: expect.count must have an entry for each of the 2 frames given, got 3",
        ),
    ],
)
def test_every_mistake_in_a_test_is_reported_with_its_position(lines, message):
    messages = problems(yaml_test(*lines))
    assert messages[0].split("pipeline.yaml:", 1)[1] == message, messages
    if "expect is required" not in message:
        assert len(messages) == 1


def test_mistakes_of_all_tests_are_reported_together():
    messages = problems(
        "  - 5\n"
        + yaml_test("name: x", "insert_at: croos", "given: [{scor: [1]}, {xyxy: [[1, 2]]}]", "expect: {count: two}")
        + yaml_test("name: y", "insert_at: crosing", INPUT, "expect: {count: 2}")
    )
    text = "\n".join(messages)
    assert "14:16: insert_at: there is no stage 'croos'" in text  # whatever else is wrong in that test
    assert "12:5: a test must be a mapping with the keys name, insert_at, extract_from, given, expect, got 5" in text
    assert "15:14: test.given.0 has no option 'scor'; did you mean 'score'?" in text
    assert "test.given.1.xyxy" in text
    assert "16:21: test.expect.count must be" in text
    assert "18:16: insert_at: there is no stage 'crosing'" in text


def test_stages_of_a_test_are_checked_in_any_form():
    assert problems(
        yaml_test("name: 5", "insert_at: busy", "extract_from: crosing", "given: no", "expect: {count: 2}")
        + yaml_test("name: x", "insert_at: [detect]", "extract_from: all", INPUT, "expect: {count: 2}")
    ) == [
        "pipeline.yaml:12:11: test.name must be text, got 5",
        "pipeline.yaml:14:19: extract_from: there is no stage 'crosing'; did you mean 'crossing'?",
        "pipeline.yaml:15:12: test.given must be a list, got 'no'",
        "pipeline.yaml:18:16: test.insert_at must be text, got ['detect']",
    ]


def test_extract_from_may_be_empty():
    code, report = run(yaml_test("name: in", "insert_at: crossing", "extract_from: ~", INPUT, f"expect: {{{IN}}}"))
    assert code == 0, report


def test_an_invalid_pipeline_is_reported_as_by_check():
    assert problems(yaml_test("name: x"), PIPELINE.replace("draw: {}", "drow: {}"))[0].endswith(
        "unknown stage 'drow'; did you mean 'draw'?"
    )
