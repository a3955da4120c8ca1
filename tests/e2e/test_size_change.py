"""A stream whose frames change their size: shapes in pixels belong to its first frame and are scaled from then on."""

import itertools
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from support.clips import resized, write
from support.messages import collect

import streamkit
from streamkit.core.data import Frame, FrameState
from streamkit.core.stage import Context
from streamkit.stages.analytics.track_analytics import warn_outside

PLUGIN = '''
import numpy as np
from streamkit import Detections, Surface, stage


@stage("walkers", writes="detections")
def walkers(frame):
    """Two people who walk from left to right, one behind the other, at the same places of a frame of any size."""
    size = np.array([frame.width, frame.height] * 2, np.float32)
    x = 0.05 + 0.04 * frame.index
    share = np.array([[x, 0.3, x + 0.15, 0.8], [x + 0.1, 0.1, x + 0.2, 0.4]], np.float32)
    scores = np.full(2, 0.9, np.float32)
    frame.detections = Detections(share * size, scores, np.zeros(2, np.int32), labels=("person",))


@stage("hidden", reads="detections", writes="detections")
def hidden(frame):
    """Lose the people for three frames."""
    if 10 <= frame.index < 13:
        frame.detections = frame.detections[:0]


@stage("shrink", reads="pixels", writes="pixels")
def shrink(frame):
    """Show every frame in 32x24."""
    frame.width, frame.height = 32, 24
    frame.surface = Surface(np.full((36, 32), 128, np.uint8), frame.surface.color)
'''

STAGES = """
stages:
  walkers: {}
  track: {method: METHOD, confirm: 0s, predicted: true}
  zone: {polygon: {left: [[0, 0], [32, 0], [32, 47], [0, 47]]}, loitering: 200ms}
  line: {stage: line_counter, line: [[40, 0], [40, 47]]}
  direction: {directions: {across: [[0, 20], [63, 20]]}, smoothing: 200ms, debounce: 0s, min_speed: 20}
  speed:
    points: [[0, 47], [63, 47], [63, 0], [0, 0]]
    ground: [[0, 0], [4, 0], [4, 3], [0, 3]]
    smoothing: 200ms
    debounce: 0s
    limit_kmh: 1
  proximity: {distance: 21}
  tripwire: {line: [[40, 0], [40, 47]]}
  rule: {when: count(person in zone.left) > 1}
"""


@pytest.fixture
def write_pipeline(tmp_path: Path, root: Path):
    (tmp_path / "walkers.py").write_text(PLUGIN)
    plugins = f"[walkers.py, '{root}/plugins/tripwire.py']"

    def written(clip: Path, stages: str) -> str:
        path = tmp_path / f"{clip.stem}.yaml"
        path.write_text(f"plugins: {plugins}\nsources: {{cam: '{clip}'}}\n{stages}")
        return str(path)

    return written


def events(frames):
    return [
        (event.frame, event.stage, event.kind, event.track_id, event.data)
        for frame in frames
        for event in frame.events
        if event.kind != "resized"
    ]


@pytest.mark.parametrize("method", ["bytetrack", "botsort"])
def test_events_equal_those_of_a_stream_of_constant_size(tmp_path, write_pipeline, method):
    stages = STAGES.replace("METHOD", method)
    plain = list(streamkit.run(write_pipeline(write(tmp_path / "plain.ts", options={"bf": "0"}), stages)))
    frames = list(streamkit.run(write_pipeline(resized(tmp_path, ".ts"), stages)))
    assert [(frame.width, frame.height) for frame in frames] == [(64, 48)] * 10 + [(96, 80)] * 10
    expected = events(plain)
    kinds = {(stage, kind) for _, stage, kind, *_ in expected}
    assert kinds >= {
        ("zone", "entered"),
        ("zone", "left"),
        ("zone", "loitering"),
        ("line", "crossed"),
        ("direction", "changed"),
        ("speed", "speeding"),
        ("proximity", "met"),
        ("rule", "raised"),
        ("rule", "cleared"),
        ("tripwire", "crossed"),
    }
    measured = events(frames)
    assert [row[:4] for row in measured] == [row[:4] for row in expected]
    for (*_, data), (*_, expected_data) in zip(measured, expected, strict=True):
        assert {key: value for key, value in data.items() if not isinstance(value, float)} == {
            key: value for key, value in expected_data.items() if not isinstance(value, float)
        }
        for key, value in expected_data.items():
            if isinstance(value, float):
                assert data[key] == pytest.approx(value, abs=0.02)


def test_tracks_continue_and_their_boxes_have_the_new_size(tmp_path, write_pipeline):
    stages = "stages: {walkers: {}, track: {method: botsort, confirm: 0s, predicted: true}}"
    frames = list(streamkit.run(write_pipeline(resized(tmp_path, ".ts"), stages)))
    for frame in frames:
        assert sorted(frame.detections.track_id.tolist()) == [1, 2]
        foot = frame.detections[frame.detections.track_id == 1].foot[0] / [frame.width, frame.height]
        assert foot.tolist() == pytest.approx([0.125 + 0.04 * frame.index, 0.8], abs=0.03)


def test_a_size_change_gives_an_event_and_a_warning(tmp_path, write_pipeline):
    logged = collect()
    both = resized(tmp_path, ".h264").read_bytes()
    clip = tmp_path / "twice.h264"
    clip.write_bytes(both + both)
    frames = list(streamkit.run(write_pipeline(clip, "stages: {walkers: {}}")))
    seen = [(event.frame, event.stage, event.data) for frame in frames for event in frame.events]
    small = {"width": 64, "height": 48}
    large = {"width": 96, "height": 80}
    assert seen == [
        (10, "decode", {**large, "before": small}),
        (20, "decode", {**small, "before": large}),
        (30, "decode", {**large, "before": small}),
    ]
    warnings = [text for text in logged if "shapes in pixels" in text]
    assert len(warnings) == 1
    assert "cam is 96x80 from 0.40 s on, before 64x48" in warnings[0]


def test_shapes_and_trails_are_drawn_in_the_new_size(tmp_path, write_pipeline):
    stages = STAGES.replace("METHOD", "bytetrack") + "  draw: {trail: 2s}\n"
    frames = list(streamkit.run(write_pipeline(resized(tmp_path, ".ts"), stages)))
    for frame in frames:
        scale = frame.width / 64, frame.height / 48
        assert frame.shape_scale == scale
        corner = frame.shown["zone left"].points[2]
        assert corner == pytest.approx((32 * scale[0], 47 * scale[1]))
    trail = next(shown for key, shown in frames[-1].shown.items() if key.endswith(" 1"))
    shares = [(x / 96, y / 80) for x, y in trail.points]
    assert shares[0] == pytest.approx((0.125, 0.8), abs=0.01)
    assert {round(y, 2) for _, y in shares} == {0.8}


def test_positions_that_the_tracker_predicts_have_the_new_size(tmp_path, write_pipeline):
    stages = "stages: {walkers: {}, hidden: {}, track: {confirm: 0s, predicted: true}}"
    frames = list(streamkit.run(write_pipeline(resized(tmp_path, ".ts"), stages)))
    for frame in frames[10:13]:
        assert frame.detections.extra["predicted"].all()
        foot = frame.detections[frame.detections.track_id == 1].foot[0] / [frame.width, frame.height]
        assert foot.tolist() == pytest.approx([0.125 + 0.04 * frame.index, 0.8], abs=0.03)


def test_a_blurred_region_is_scaled_to_the_new_size(tmp_path, write_pipeline):
    clip = resized(tmp_path, ".ts")
    zone = "{zone: [[16, 8], [40, 8], [40, 32], [16, 32]]}"
    clear, mosaic = (
        list(streamkit.run(write_pipeline(clip, f"stages: {{walkers: {{}}, draw: {{only: [none]{more}}}}}")))
        for more in ("", f", pixelate: {zone}")
    )
    for frame, frame_with_mosaic in zip(clear, mosaic, strict=True):
        changed = (frame.image() != frame_with_mosaic.image()).any(axis=2)
        across, down = frame.shape_scale
        inside = np.zeros_like(changed)
        inside[round(8 * down) : round(32 * down), round(16 * across) : round(40 * across)] = True
        assert changed[inside].mean() > 0.8
        assert changed.sum() < 2.5 * inside.sum()  # whole cells of eight pixels are hidden


@pytest.mark.parametrize("tiles", [{}, {"tiles": {"size": [200, 200]}}], ids=["whole", "tiles"])
def test_the_region_of_a_network_is_scaled_to_the_new_size(tmp_path, root, tiles):
    clip = tmp_path / "street.h264"
    with av.open(str(root / "samples" / "street.mp4")) as street:
        pictures = list(itertools.islice(street.decode(video=0), 8))
    clip.write_bytes(coded(pictures[:4], (320, 180)) + coded(pictures[4:], (640, 360)))
    roi = [[40, 50], [260, 50], [260, 175], [40, 175]]
    stages = {"detect": {"model": "demo", "roi": roi, "min_score": 0.3, **tiles}}
    frames = list(streamkit.run(str(clip), stages=stages, device="cpu"))
    assert [frame.width for frame in frames] == [320] * 4 + [640] * 4
    for frame in frames:
        feet = frame.detections.foot / frame.shape_scale
        assert len(feet) > 2
        assert ((feet >= [40, 50]) & (feet <= [260, 175])).all()
    right = max(frame.detections.foot[:, 0].max() for frame in frames[4:])
    assert right > 270, "the region is twice as wide in the larger frames"


def test_a_shape_outside_the_first_frame_is_reported_at_any_size():
    logged = collect()
    frame = Frame("gate", 9, 0.0, 640, 480, _state=FrameState(ordinal=9, shape_size=(320, 240)))
    shapes = {"inside": ((100.0, 0.0), (100.0, 200.0)), "beside": ((400.0, 0.0), (400.0, 200.0))}
    warn_outside(Context(id="door"), [frame], "line", shapes, "pixels", closed=False, again=True)
    assert logged == ["door.line.beside is outside of the frame, 640x480 of gate: no object can be in it"]


def coded(pictures, size):
    """Pictures as a bare H.264 stream of another size."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height = size
    encoder.pix_fmt = "yuv420p"
    encoder.time_base = Fraction(1, 25)
    encoder.options = {"bf": "0", "crf": "12", "preset": "ultrafast"}
    packets = []
    for number, picture in enumerate(pictures):
        frame = picture.reformat(*size, format="yuv420p")
        frame.pts = number
        frame.time_base = encoder.time_base
        packets += encoder.encode(frame)
    return b"".join(map(bytes, [*packets, *encoder.encode(None)]))


def test_shapes_below_a_resizing_stage_are_in_its_pixels(tmp_path, write_pipeline):
    frames = list(
        streamkit.run(write_pipeline(resized(tmp_path, ".ts"), "stages: {walkers: {}, shrink: {}}"), device="cpu")
    )
    assert {(frame.width, frame.height, frame.shape_scale) for frame in frames} == {(32, 24, (1.0, 1.0))}


def test_images_of_a_folder_may_differ_in_size(tmp_path, write_pipeline):
    folder = tmp_path / "shots"
    folder.mkdir()
    for number, (height, width) in enumerate([(48, 64), (80, 96), (48, 64)]):
        cv2.imwrite(str(folder / f"{number}.png"), np.full((height, width, 3), 128, np.uint8))
    frames = list(streamkit.run(write_pipeline(folder, "stages: {walkers: {}}")))
    assert [(frame.width, frame.shape_scale, frame.events) for frame in frames] == [
        (64, (1.0, 1.0), []),
        (96, (1.0, 1.0), []),
        (64, (1.0, 1.0), []),
    ]
