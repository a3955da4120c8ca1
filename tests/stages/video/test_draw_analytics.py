"""`draw` below analytics: zones and lines with their counts, trails, and objects in no track."""

import numpy as np
import pytest
from support.walkers import walkers

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Color, Shown, Surface
from streamkit.core.errors import ConfigError
from streamkit.ops.annotate import annotate
from streamkit.ops.glyphs import Atlas
from streamkit.ops.style import Style, palette_yuv
from streamkit.stages.analytics.line_counter import LineCounter
from streamkit.stages.analytics.zone import Zone
from streamkit.stages.video.draw import Draw, Trails
from streamkit.testing.kit import detections, run_stage

FILLS = palette_yuv(Color())[0]
# luma of zones and lines, and of the first class
YELLOW = int(FILLS[5]) & 255
FIRST = int(FILLS[0]) & 255
BARE = {"labels": False, "scores": False, "tracks": False}


def pictured(footage, value=100):
    """Frames with gray pixels."""
    for frame in footage:
        data = np.full((frame.height * 3 // 2, frame.width), value, np.uint8)
        frame.surface = Surface(data, Color())
    return footage


def walked(count=20, speed=50.0, **columns):
    """One object, 40 x 80, that walks to the right from x = 100; its foot is at y = 180."""
    footage = pictured(walkers(count, [(100, 100)], speed=speed, **columns))
    for frame in footage:
        frame.detections = frame.detections.with_columns(track_id=np.full(len(frame.detections), 1))
    return footage


def luma(frame):
    return frame.surface.data[: frame.height]


def yellow(frame):
    """Where lines and zones are, (height, width) bool."""
    return luma(frame) == YELLOW


# ------------------------------------------------------------------------------------------------- zones and lines


def test_a_zone_and_a_line_are_on_every_frame_with_their_counts():
    analyzed = run_stage(Zone(polygon=[(90, 90), (130, 90), (130, 300), (90, 300)]), walked(30), stage_id="door")
    analyzed = run_stage(LineCounter(line={"gate": [(150, 0), (150, 300)]}), analyzed, stage_id="lines")
    assert [frame.shown["door "].text for frame in analyzed[:5]] == ["door 1"] * 5
    assert analyzed[-1].shown["door "].text == "door 0"
    texts = [frame.shown["lines gate"].text for frame in analyzed]
    assert (texts[0], texts[-1]) == ("gate in 0 out 0", "gate in 0 out 1")
    at = [event.frame for frame in analyzed for event in frame.events if event.kind == "crossed"]
    changed = [i for i in range(1, 30) if texts[i] != texts[i - 1]]
    assert changed == at, "the frame of the event shows it"
    assert analyzed[0].shown["door "].closed
    assert not analyzed[0].shown["lines gate"].closed
    assert "shown" not in analyzed[0].facts


def test_draw_shows_shapes_unless_analytics_is_off():
    analyzed = run_stage(Zone(polygon=[(300, 100), (500, 100), (500, 300), (300, 300)]), walked(3))
    drawn = run_stage(Draw(**BARE), analyzed)[0]
    seen = yellow(drawn)
    ys, xs = np.nonzero(seen[200:, :])
    assert seen[150:250, 298:302].any(axis=1).all(), "the left edge"
    assert seen[298:302, 300:500].any(axis=0).all(), "the lower edge"
    assert not seen[110:290, 310:490].any(), "the inside is clear"
    assert (xs.min(), xs.max() + 1, ys.max() + 201) == (298, 502, 302)
    off = run_stage(Draw(**BARE, analytics=False), analyzed)[0]
    assert not yellow(off).any()


def test_axis_aligned_edges_have_a_constant_thickness():
    footage = run_stage(Zone(polygon=[(300, 100), (500, 100), (500, 300), (300, 300)]), walked(1))
    seen = yellow(run_stage(Draw(**BARE), footage)[0])
    assert set(seen[:, 350:450].sum(axis=0).tolist()) == {4}, "two edges of 2 pixels"
    assert set(seen[150:250].sum(axis=1).tolist()) == {4}


def test_shares_are_relative_to_the_frame():
    analyzed = run_stage(LineCounter(line=[(0.5, 0.0), (0.5, 1.0)], units="share"), walked(1))
    seen = yellow(run_stage(Draw(**BARE), analyzed)[0])
    assert seen[20:350, 316:322].any(axis=1).all()
    assert not seen[20:, 330:].any(), "only the label, at the top, is beside the line"


def test_a_shape_may_extend_beyond_the_image():
    lines = {
        "level": [(-1e12, 200), (1e12, 200)],
        "steep": [(401, -1e9), (411, 1e9)],
        "away": [(-500, -500), (-400, -900)],
        "beside": [(700, -100), (700, 900)],
    }
    footage = walked(1)
    footage[0].shown = {name: Shown(tuple(line)) for name, line in lines.items()}
    seen = yellow(run_stage(Draw(**BARE), footage)[0])
    assert seen[198:202, 200:].any(axis=0).all()
    assert seen[:, 403:409].any(axis=1).all()
    seen[196:204] = False
    seen[:, 400:412] = False
    assert not seen.any()


def test_labels_are_at_a_lines_first_point_and_a_zones_upper_left_corner():
    atlas = Atlas()
    shapes = {
        "a": Shown(((300, 200), (500, 200)), text="gate in 1 out 0"),
        "b": Shown(((500, 300), (500, 100), (300, 120), (300, 300)), closed=True, text="hall 2"),
    }
    surface = Surface(np.full((540, 640), 100, np.uint8), Color())
    marks, _ = annotate([surface], [], Style(), atlas, (), [(shapes, 640, 360)])
    labels = marks[marks["sprite"] >= 0]
    assert labels["x1"].tolist() == [300, 300]
    assert labels["y1"].tolist() == [200 - 14, 120 - 14]
    assert labels["sprite"].tolist() == [atlas.text("gate in 1 out 0", 14)[0], atlas.text("hall 2", 14)[0]]


def test_shapes_of_branches_are_separate_until_merged():
    from streamkit.core.data import Batch
    from streamkit.runtime.execution.tables import merge_batches

    whole = Batch(walked(1))
    left = whole.fork()
    right = whole.fork()
    left.frames[0].shown["left "] = Shown(((0, 0), (9, 9)))
    right.frames[0].shown["right "] = Shown(((0, 0), (9, 9)))
    assert not whole.frames[0].shown
    assert set(merge_batches([left, right]).frames[0].shown) == {"left ", "right "}


def test_records_have_no_drawn_shapes(run_pipeline):
    text = """
    sources: {street: {uri: samples/street.mp4, end: 0.2}}
    stages:
      detect: {model: demo}
      track: {}
      hall: {stage: zone, polygon: [[0, 0], [320, 0], [320, 360], [0, 360]]}
      draw: {trail: 1s}
      collect: {}
    """
    records = run_pipeline(text).records["street"]
    assert records
    assert all("shown" not in record for record in records)


# --------------------------------------------------------------------------------------------------- in no track


def test_untracked_objects_are_not_drawn_below_a_tracker():
    footage = walked(1)
    table = detections([[100, 100, 140, 180], [300, 100, 340, 180]], [0.9, 0.2], track_id=[1, -1])
    footage[0].tables = {"detect": table}
    drawn = luma(run_stage(Draw(**BARE), footage)[0])
    assert (drawn[100:180, 98:142] != 100).any()
    assert (drawn[:, 290:] == 100).all()
    drawn = luma(run_stage(Draw(**BARE, untracked=True), footage)[0])
    assert (drawn[100:180, 298:342] != 100).any()
    footage[0].tables = {"detect": detections([[300, 100, 340, 180]], [0.2])}
    assert (luma(run_stage(Draw(**BARE), footage)[0])[100:180, 298:342] != 100).any(), "nothing tracks here"


def test_untracked_objects_are_hidden():
    footage = walked(1)
    footage[0].surface.data[:360] = np.arange(640, dtype=np.uint8)[None]
    before = footage[0].surface.data.copy()
    footage[0].tables = {"detect": detections([[300, 100, 340, 180]], [0.2], track_id=[-1], labels=("person",))}
    after = luma(run_stage(Draw(**BARE, pixelate="all"), footage)[0])
    assert (after[110:170, 305:335] != before[110:170, 305:335]).any()


# ---------------------------------------------------------------------------------------------------------- trails


def trail_of(frame, track=1):
    return frame.shown[f"trails detect {track}"].points


def test_a_trail_covers_the_foot_points_of_its_time():
    footage = run_stage(Trails(last=0.4), walked(30))
    assert not footage[0].shown, "one place is no trail"
    assert trail_of(footage[5])[0] == (120.0, 180.0)
    assert trail_of(footage[5])[-1] == (130.0, 180.0)
    first, *_, last = trail_of(footage[29])
    assert last == pytest.approx((120 + 50 * 29 / 25, 180))
    assert last[0] - 20 - 1e-3 <= first[0] <= last[0] - 20 + 4, "0.4 s at 50 pixels a second"
    steps = np.diff([x for x, _ in trail_of(footage[29])])
    assert (steps[:-1] >= 3.6 - 1e-4).all(), "1 % of the frame's height at least"


def test_a_trail_of_a_standing_object_stays_small():
    footage = run_stage(Trails(last=3600), walked(200, speed=0))
    assert len(trail_of(footage[-1])) == 2


def test_a_recovered_object_has_the_rest_of_its_trail():
    footage = walked(30)
    for frame in footage[10:20]:
        frame.detections = frame.detections[:0]
    footage = run_stage(Trails(last=2), footage)
    assert all(not frame.shown for frame in footage[10:20])
    assert trail_of(footage[20])[0] == (120.0, 180.0)
    short = run_stage(Trails(last=0.2), [frame for frame in walked(30) if not 10 <= frame.index < 20])
    assert not short[10].shown, "all of it is too old"


def test_trails_end_at_a_time_jump_back_or_restart():
    for change in ("pts_s", "epoch"):
        footage = walked(10)
        for frame in footage[5:]:
            if change == "pts_s":
                frame.pts_s -= 10
            else:
                frame._state.epoch = 1
        footage = run_stage(Trails(last=20), footage)
        assert not footage[5].shown
        assert len(trail_of(footage[6])) == 2


def test_untracked_objects_have_no_trail():
    footage = walked(5)
    for frame in footage:
        frame.detections = frame.detections.with_columns(track_id=np.array([-1]))
    assert not any(frame.shown for frame in run_stage(Trails(), footage))
    assert not any(frame.shown for frame in run_stage(Trails(), walkers(5, [(0, 0)])))


def test_trails_are_separate_by_source_and_detector():
    mixed = [f for pair in zip(walked(6), walked(6), strict=True) for f in pair]
    for frame in mixed[1::2]:
        frame.source = "b"
        boxes = frame.detections.xyxy + np.array([200, 0, 200, 0], np.float32)
        frame.detections = frame.detections.with_columns(xyxy=boxes)
    for frame in mixed:
        frame.tables["faces"] = frame.tables["detect"]
    footage = run_stage(Trails(last=2), mixed)
    assert set(footage[-1].shown) == {"trails detect 1", "trails faces 1"}
    assert trail_of(footage[-1])[0] == (320.0, 180.0)
    assert trail_of(footage[-2])[0] == (120.0, 180.0)


def test_trails_have_the_colors_of_drawn_objects():
    drawn = run_stage(Draw(**BARE, trail=2.0), walked(25))[-1]
    trail = luma(drawn)[178:182, 122:140]
    assert (trail == FIRST).any(axis=0).all()
    by_track = run_stage(Draw(**BARE, trail=2.0, color="track"), walked(25))[-1]
    assert (luma(by_track)[178:182, 122:140] == int(FILLS[1]) & 255).any(axis=0).all()
    only = run_stage(Draw(**BARE, trail=2.0, only=("person",)), walked(25))[-1]
    assert (luma(only) == 100).all()
    without = run_stage(Draw(**BARE), walked(25))[-1]
    assert (luma(without)[170:186, 122:140] == 100).all()


def graph(draw, track="track: {}"):
    text = f"sources: {{a: samples/street.mp4}}\nstages:\n  detect: {{model: demo}}\n  {track}\n  draw: {draw}"
    return build(read_text(text))


def test_the_graph_has_a_trail_stage_on_request():
    assert list(graph("{}").nodes)[-2:] == ["track", "draw"]
    built = graph("{trail: 1500ms}")
    assert built.nodes["draw"].inputs == ["draw.trails"]
    assert built.nodes["draw.trails"].inputs == ["track"]
    assert built.nodes["draw.trails"].options == {"last": 1.5}


@pytest.mark.parametrize(
    ("draw", "track", "says"),
    [
        ("{trail: 0s}", "track: {}", "trail must be longer than 0s"),
        ("{trail: 2s}", "more: {stage: detect, model: demo}", "draw.trails reads track_id"),
    ],
)
def test_invalid_trails_are_refused(draw, track, says):
    with pytest.raises(ConfigError) as error:
        graph(draw, track)
    assert says in str(error.value)


# ------------------------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
def test_device_and_host_draw_equal_analytics():
    import cupy

    def analyzed():
        footage = run_stage(Zone(polygon={"hall": [(90, 90), (430, 110), (330, 300), (60, 250)]}), walked(25))
        footage = run_stage(LineCounter(line=[(-50, 20), (700, 340)]), footage)
        return run_stage(Trails(last=2), footage)[-4:]

    host = analyzed()
    device = analyzed()
    for device_frame in device:
        device_frame.surface = Surface(cupy.asarray(device_frame.surface.data), device_frame.surface.color)
    on_host = run_stage(Draw(), host)
    on_device = run_stage(Draw(), device)
    for a, b in zip(on_host, on_device, strict=True):
        assert np.array_equal(b.surface.data.get(), a.surface.data)
