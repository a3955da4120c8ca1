"""The stage in a pipeline; tests/analytics has the rules."""


def test_in_a_pipeline_with_its_report(run_pipeline):
    outcome = run_pipeline(
        """
plugins: [plugins]
sources: {street: samples/street.mp4}
stages:
  detect: {model: demo}
  track: {stage: simple_track}
  zone:
    polygon: {all: [[0, 0], [1, 0], [1, 1], [0, 1]], left: [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}
    units: share
    labels: [car]
    more_than: 1
    loitering: 1s
  collect: {}
""",
        limit=60,
    )
    assert outcome.code == 0
    count = {"all": 0, "left": 0}
    kinds = set()
    for record in outcome.records["street"]:
        for event in record["events"]:
            kinds.add(event["kind"])
            count[event["data"]["zone"]] = event["data"]["count"]
        assert count["all"] >= count["left"] >= 0
    assert {"entered", "loitering", "overcrowded"} <= kinds
    counters = outcome.report["counts"]
    entered, left = counters["zone all entered: car"], counters.get("zone all left: car", 0)
    assert counters["zone all in at the end"] == entered - left == count["all"]
