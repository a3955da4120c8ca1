"""Recordings around the clock over HTTP: lists, time lines, pieces to play, images and exports, of a real pipeline."""

import io
import time

import av
import numpy as np
import pytest
from support.recorded import video_fixture  # noqa: F401  a fixture
from support.servers import served

PIPELINE = """
sources:
  gate: "{video}"
  bars: {{uri: "test://", pace: 5}}
stages:
  record: {{continuous: true, folder: "{folder}", segment: 3s{more}}}
"""
API = "/api/v1/recordings"


def numbers(data):
    """The numbers that the frames of a video show, with their times in milliseconds."""
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(video=0))
    return [round(float(frame.to_ndarray()[:48].mean())) for frame in frames]


@pytest.fixture(scope="module")
def recorded(root, video, tmp_path_factory):
    """A server whose pipeline has recorded the ten seconds of `video`."""
    folder = tmp_path_factory.mktemp("recordings")
    with served(PIPELINE.format(video=video, folder=folder, more=""), root) as server:
        server.until(lambda: server.source("gate")["state"] == "ended")
        server.until(lambda: server.client.get(API).json() and len(list(folder.rglob("*Z_*s.mp4"))) >= 4)
        time.sleep(1.1)  # the index looks at the files once a second
        yield server


@pytest.fixture
def first_s(recorded):
    return recorded.client.get(API).json()[0]["first_s"]


def test_the_list_has_each_source_with_its_days(recorded):
    (entry,) = recorded.client.get(API).json()
    assert entry["source"] == "gate"
    assert entry["last_s"] - entry["first_s"] == pytest.approx(10.0, abs=0.05)
    assert sum(day["recorded_s"] for day in entry["days"]) == pytest.approx(10.0, abs=0.05)
    assert entry["days"][0]["day"] == time.strftime("%Y-%m-%d", time.gmtime(entry["first_s"]))


def test_a_time_line_joins_files_and_has_the_gaps(recorded, first_s):
    about = {"source": "gate", "from_s": first_s - 60, "to_s": first_s + 10, "bins": 70}
    line = recorded.client.get(f"{API}/timeline", params=about).json()
    (segment,) = line["segments"]
    assert (segment["width"], segment["height"], segment["codec"]) == (64, 48, "h264")
    assert segment["from_s"] == pytest.approx(first_s)
    assert line["gaps"] == [{"from_s": first_s - 60, "to_s": first_s, "cause": "not recorded"}]
    assert line["motion"][:59] == [0] * 59
    assert min(line["motion"][60:]) > 0
    assert 0.5 * segment["bytes"] < sum(line["motion"]) < segment["bytes"], "all but the headers of the files"
    assert line["motion_by"] == "bytes"


def test_a_piece_begins_at_the_keyframe_before_and_joins_files(recorded, first_s):
    piece = recorded.client.get(
        f"{API}/video", params={"source": "gate", "from_s": first_s + 1.5, "to_s": first_s + 7.2}
    )
    assert piece.status_code == 200
    assert piece.headers["content-type"].startswith('video/mp4; codecs="avc1.')
    assert float(piece.headers["x-start-s"]) == pytest.approx(first_s + 1, abs=0.002)
    assert float(piece.headers["x-end-s"]) == pytest.approx(first_s + 8, abs=0.002)
    assert numbers(piece.content) == list(range(25, 200))
    with av.open(io.BytesIO(piece.content)) as container:
        times = [round(float(frame.time), 3) for frame in container.decode(video=0)]
    assert np.diff(times) == pytest.approx(np.full(174, 0.04), abs=0.002)


def test_an_image_is_the_keyframe_before(recorded, first_s):
    image = recorded.client.get(f"{API}/image", params={"source": "gate", "time_s": first_s + 4.9, "width": 32})
    assert float(image.headers["x-time-s"]) == pytest.approx(first_s + 4, abs=0.002)
    with av.open(io.BytesIO(image.content), format="jpeg_pipe") as container:
        frame = next(container.decode(video=0))
    assert (frame.width, frame.height) == (32, 24)
    assert float(np.mean(frame.to_ndarray(format="gray"))) == pytest.approx((100 - 16) * 255 / 219, abs=3)


@pytest.mark.parametrize(
    ("exact", "expected"), [(False, range(25, 200)), (True, range(40, 180))], ids=["keyframes", "exact"]
)
def test_an_export_decodes_to_exactly_these_frames(recorded, first_s, exact, expected):
    about = {"source": "gate", "from_s": first_s + 1.6, "to_s": first_s + 7.2, "exact": exact}
    export = recorded.client.get(f"{API}/export", params=about)
    assert export.status_code == 200, export.text
    assert export.headers["content-disposition"].startswith('attachment; filename="gate-')
    seen = numbers(export.content)
    assert len(seen) == len(expected)
    assert np.abs(np.subtract(seen, expected)).max() <= 1
    assert float(export.headers["x-start-s"]) == pytest.approx(first_s + expected[0] / 25, abs=0.002)
