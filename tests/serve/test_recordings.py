"""Recordings around the clock over HTTP: lists, time lines, pieces to play, images and exports, of a real pipeline."""

import asyncio
import contextlib
import io
import shutil
import time

import av
import numpy as np
import pytest
from fastapi import APIRouter
from support.fed_recorders import drawn
from support.recorded import video_fixture  # noqa: F401  a fixture
from support.servers import served

from streamkit.io.segment_files import marked_path
from streamkit.serve import recordings
from streamkit.serve.routes import recordings as routes

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


def test_nothing_is_shown_without_a_token(recorded, first_s):
    period = {"source": "gate", "from_s": first_s, "to_s": first_s + 5, "time_s": first_s}
    for route in ("", "/timeline", "/video", "/image", "/export"):
        assert recorded.open.get(API + route, params=period).status_code == 401, route


@pytest.mark.parametrize("source", ["nobody", "../gate", "/etc", "..", "gate/../gate", "%2e%2e/gate", ""])
def test_a_source_is_a_name_and_never_a_path(recorded, first_s, source):
    period = {"source": source, "from_s": first_s, "to_s": first_s + 5, "time_s": first_s}
    for route in ("video", "image", "export"):
        refused = recorded.client.get(f"{API}/{route}", params=period)
        assert (refused.status_code, refused.json()["error"]) == (404, f"nothing is recorded of {source}")
    assert recorded.client.get(f"{API}/timeline", params=period).json()["segments"] == []


@pytest.mark.parametrize(
    ("route", "length_s", "more", "status", "error"),
    [
        ("video", 61, {}, 422, "at most 60 s a request, got 61 s"),
        ("export", 700, {"exact": True}, 422, "at most 600 s with exact=true, got 700 s"),
        ("video", 0, {}, 422, "from_s must be before to_s"),
        ("timeline", -5, {}, 422, "from_s must be before to_s"),
    ],
)
def test_periods_have_limits(recorded, first_s, route, length_s, more, status, error):
    period = {"source": "gate", "from_s": first_s, "to_s": first_s + length_s, **more}
    refused = recorded.client.get(f"{API}/{route}", params=period)
    assert (refused.status_code, refused.json()["error"][: len(error)]) == (status, error)


def test_a_time_before_the_recording_is_not_found(recorded, first_s):
    period = {"source": "gate", "from_s": first_s - 100, "to_s": first_s - 90, "time_s": first_s - 100}
    for route in ("video", "image", "export"):
        refused = recorded.client.get(f"{API}/{route}", params=period)
        assert (refused.status_code, refused.json()["error"]) == (404, "gate is not recorded at that time")


def test_only_so_many_exports_are_made_at_once(recorded, first_s, monkeypatch):
    monkeypatch.setattr(routes, "MAX_EXPORTS", 0)
    refused = recorded.client.get(f"{API}/export", params={"source": "gate", "from_s": first_s, "to_s": first_s + 1})
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "2"


def test_an_export_whose_client_has_left_is_closed(recorded, first_s, tmp_path):
    """It was made while the client left, so that nothing of it is ever sent."""

    async def receive():
        return {"type": "http.disconnect"}

    async def send(message):
        raise OSError("the client has left")

    api = APIRouter()
    routes.add_recordings(api, recorded.engine, tmp_path)
    route = next(route for route in api.routes if route.path.endswith("/export"))
    period = routes.Period("gate", first_s, first_s + 1)
    for _ in range(routes.MAX_EXPORTS + 1):  # each gives its place back
        response = route.endpoint(period)
        with contextlib.suppress(OSError, BaseExceptionGroup):
            asyncio.run(response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send))
        assert response.file.closed


def test_an_export_leaves_room_on_the_disk(recorded, first_s, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    query = {"source": "gate", "from_s": first_s, "to_s": first_s + 1}
    refused = recorded.client.get(f"{API}/export", params=query)
    assert refused.status_code == 409
    assert "the disk is too full" in refused.json()["error"]


def test_images_are_decoded_once(recorded, first_s, monkeypatch):
    about = {"source": "gate", "time_s": first_s + 2.5, "width": 48}
    shown = recorded.client.get(f"{API}/image", params=about)
    monkeypatch.setattr(recordings, "keyframe_jpeg", None)
    assert recorded.client.get(f"{API}/image", params=about).content == shown.content


def test_hidden_places_are_not_shown_unless_that_is_allowed(root, video, tmp_path):
    text = PIPELINE.replace("record:", "draw: {{blur: {{zone: [[0, 0], [1, 0], [1, 1]], units: share}}}}\n  record:")
    for more, status in (("", 403), (", hidden: allow", 404)):
        with served(text.format(video=video, folder=tmp_path / "rec", more=more), root) as server:
            period = {"source": "nobody", "from_s": 5, "to_s": 8, "time_s": 5}
            for route in ("video", "image", "export"):
                refused = server.client.get(f"{API}/{route}", params=period)
                assert refused.status_code == status, (route, more)


def test_files_that_are_removed_or_moved_meanwhile(root, video, tmp_path):
    with served(PIPELINE.format(video=video, folder=tmp_path / "rec", more=""), root) as server:
        server.until(lambda: server.source("gate").get("state") == "ended")
        server.until(lambda: len(list((tmp_path / "rec").rglob("*Z_*s.mp4"))) == 4)
        server.engine.recordings.refresh(now=True)
        first_s = server.client.get(API).json()[0]["first_s"]
        first, second, *_ = sorted((tmp_path / "rec").rglob("*Z_*s.mp4"))
        second.rename(marked_path(second))
        period = {"source": "gate", "from_s": first_s + 4, "to_s": first_s + 5}
        assert numbers(server.client.get(f"{API}/video", params=period).content)[0] == 100, "it is found again"
        first.unlink()
        server.engine.recordings._refreshed_s = server.engine.recordings._clock() + 60
        refused = server.client.get(f"{API}/export", params={**period, "from_s": first_s, "to_s": first_s + 1})
        assert (refused.status_code, refused.json()["error"]) == (
            404,
            "the recording of gate at that time was removed meanwhile",
        )


def test_a_camera_that_is_away_and_comes_back_with_another_size(rtsp, root, tmp_path):
    """A real camera, whose frames show their number."""
    small = drawn(tmp_path / "small.mp4", (64, 48))
    camera = rtsp({"gate": small})
    text = PIPELINE.format(video=camera.url("gate"), folder=tmp_path / "rec", more="")
    with served(text, root, data=tmp_path / "data") as server:

        def segments():
            period = {"source": "gate", "from_s": time.time() - 600, "to_s": time.time() + 1}
            return server.client.get(f"{API}/timeline", params=period).json()

        server.until(lambda: (line := segments()["segments"]) and line[0]["to_s"] - line[0]["from_s"] > 3)
        camera.stop()
        time.sleep(2.5)
        camera.swap("gate", drawn(tmp_path / "large.mp4", (128, 96)))
        line = server.until(lambda: (line := segments()) and len(line["segments"]) == 2 and line)
        first, second = line["segments"]
        assert [(segment["width"], segment["height"]) for segment in (first, second)] == [(64, 48), (128, 96)]
        assert {"from_s": first["to_s"], "to_s": second["from_s"], "cause": "camera away"} in line["gaps"]
        period = {"source": "gate", "from_s": first["from_s"], "to_s": second["to_s"]}
        piece = server.client.get(f"{API}/video", params=period)
        assert float(piece.headers["x-end-s"]) == pytest.approx(first["to_s"], abs=0.1), (
            "it ends where the size changes"
        )
        assert set(np.diff(numbers(piece.content)) % 50) == {1}
        refused = server.client.get(f"{API}/export", params=period)
        assert refused.status_code == 409
        assert refused.json()["error"].startswith("the camera changed its video within these times")
