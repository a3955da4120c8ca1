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
    assert counters["zone all inside at the end"] == entered - left == count["all"]


def test_what_is_outside_of_a_source_s_picture_is_told_once(run_pipeline):
    outcome = run_pipeline(
        """
sources: {street: samples/street.mp4, small: "test://?width=320&height=240&frames=12"}
stages:
  detect: {model: demo}
  track: {stage: track}
  zone: {polygon: {near: [[400, 10], [500, 10], [500, 90]], far: [[5000, 10], [5100, 10], [5100, 90]]}}
  line: {stage: line_counter, line: [[1.2, 0], [1.2, 1]], units: share}
  draw: {pixelate: {zone: [[700, 10], [800, 10], [800, 90]]}}
  collect: {}
""",
        limit=24,
    )
    assert outcome.code == 0
    told = [
        f"{what} is outside of the frame, {picture}: no object can be in it"
        for what, pictures in (
            ("zone.polygon.near", ["320x240 of small"]),
            ("zone.polygon.far", ["320x240 of small", "640x360 of street"]),
            ("line.line", ["320x240 of small", "640x360 of street"]),
            ("draw.pixelate.zone", ["320x240 of small", "640x360 of street"]),
        )
        for picture in pictures
    ]
    assert sorted(one for one in outcome.logged if "outside" in one) == sorted(told)
