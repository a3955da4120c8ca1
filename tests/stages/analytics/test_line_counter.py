"""The stage in a pipeline; tests/analytics has the rules."""

from collections import Counter

from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.testing.kit import detections, frames, run_stage


def test_a_pipeline_counts_crossings_and_reports_them(run_pipeline):
    outcome = run_pipeline(
        """
plugins: [plugins]
sources: {street: samples/street.mp4}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  line_counter: {line: [[0.5, 0], [0.5, 1]], units: share, window: 1s}
  collect: {}
""",
        limit=60,
    )
    assert outcome.code == 0
    events = [event for record in outcome.records["street"] for event in record["events"]]
    crossed = [event for event in events if event["kind"] == "crossed"]
    counted = [event["data"] for event in events if event["kind"] == "counted"]
    assert crossed
    assert [(counted_window["from_s"], counted_window["to_s"]) for counted_window in counted] == [
        (0.0, 1.0),
        (1.0, 2.0),
    ]
    counts = Counter(
        f"line_counter {crossing['data']['direction']}: {crossing['data']['label']}" for crossing in crossed
    )
    assert {name: n for name, n in outcome.report["counts"].items() if name in counts} == dict(counts)


def walk(source, *xs, label="car"):
    """Frames of a source on which one object stands at these places, one after the other."""
    walked = frames(len(xs), source, step_s=0.1)
    for frame, x in zip(walked, xs, strict=True):
        frame.tables = {"detect": detections([[x - 5, 80, x + 5, 100]], track_id=[7], label=[label])}
    return walked


def crossings(done):
    events = [(frame.source, event.data) for frame in done for event in frame.events if event.kind == "crossed"]
    return [(source, facts["line"], facts["direction"], facts["in"], facts["out"]) for source, facts in events]


THERE_AND_BACK = *range(20, 101, 10), *range(90, 19, -10)


def test_each_line_counts_both_directions_for_its_sources():
    lines = {"near": ((60, 0), (60, 200)), "far": ((75, 0), (75, 200))}
    walked = [*walk("gate", *THERE_AND_BACK), *walk("yard", *THERE_AND_BACK)]
    every = [
        (source, *row)
        for source in ("gate", "yard")
        for row in (("near", "out", 0, 1), ("far", "out", 0, 1), ("far", "in", 1, 1), ("near", "in", 1, 1))
    ]
    assert crossings(run_stage(LineCounter(line=lines), walked)) == every
    of_yard = crossings(run_stage(LineCounter(line=lines, sources={"far": ["yard"]}), walked))
    assert of_yard == [row for row in every if row[:2] != ("gate", "far")]
    assert crossings(run_stage(LineCounter(line=lines, sources=["yard"]), walked)) == every[4:]
