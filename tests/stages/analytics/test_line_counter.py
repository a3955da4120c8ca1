"""The stage in a pipeline; tests/analytics has the rules."""

from collections import Counter


def test_in_a_pipeline_with_its_report(run_pipeline):
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
    assert [(one["from_s"], one["to_s"]) for one in counted] == [(0.0, 1.0), (1.0, 2.0)]
    counts = Counter(f"line_counter {one['data']['direction']}: {one['data']['label']}" for one in crossed)
    assert {name: n for name, n in outcome.report["counts"].items() if name in counts} == dict(counts)
