"""`source`: which pictures of a video come, when, and from where."""

import functools
import http.server
import itertools
import threading
import time

import pydantic
import pytest
from support.clips import write

from streamkit.config.validate import model_of
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context, default_registry, options
from streamkit.media.surfaces import shared_pool
from streamkit.stages.sources.source import VideoSource


def frames(uri, **source_options):
    source = VideoSource(uri=str(uri), **source_options)
    source.context = Context(id="cam")
    return source.frames()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """50 pictures, 25 a second, a keyframe every 10, B frames."""
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=50, options={"g": "10", "bf": "2"})


def test_a_frame_has_its_source_index_and_time(clip):
    first, second, *rest = frames(clip)
    assert (first.source, first.index, first.pts_s, first.width, first.height) == ("cam", 0, 0.0, 64, 48)
    assert (second.index, second.pts_s, second.due_s, second.time_s) == (1, 0.04, None, None)
    assert first.surface.data.shape == (72, 64)
    assert len(rest) == 48


@pytest.mark.parametrize(
    ("source_options", "indices"),
    [
        ({"start": 1.0}, list(range(25, 50))),
        ({"start": 1.01}, list(range(26, 50))),
        ({"start": 0.4, "end": 0.6}, list(range(10, 15))),
        ({"end": 0.2}, list(range(5))),
        ({"every": 20}, [0, 20, 40]),
        ({"every": 10, "start": 0.6}, [20, 30, 40]),
        ({"fps": 5.0}, list(range(0, 50, 5))),
        ({"fps": 10.0, "end": 0.5}, [0, 3, 5, 8, 10]),
        ({"fps": 100.0, "end": 0.2}, list(range(5))),
        ({"loop": 2, "end": 0.08}, [0, 1, 2, 3]),
        ({"keyframes": True}, [0, 10, 20, 30, 40]),
        ({"keyframes": True, "start": 0.5, "end": 1.5}, [20, 30]),
        ({"keyframes": True, "fps": 2.0}, [0, 20, 30, 40]),
        ({"keyframes": True, "loop": 2}, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
        ({"keyframes": True, "decoders": "auto"}, [0, 10, 20, 30, 40]),
        ({"keyframes": True, "start": 1.0, "loop": 3}, [30, 40, 55, 65, 80, 90]),
        ({"every": 15, "loop": 2}, [0, 15, 30, 45, 60, 75, 90]),
        ({"every": 15, "decoders": 3}, [0, 15, 30, 45]),
    ],
)
def test_a_selection_of_frames_is_read(clip, source_options, indices):
    taken = list(frames(clip, **source_options))
    assert [f.index for f in taken] == indices
    assert {type(f.index) for f in taken} == {int}
    assert [f.pts_s for f in taken] == pytest.approx([i / 25 for i in indices])


def test_a_start_in_the_middle_gives_the_same_pixels(clip):
    whole = {f.index: f.surface.data.copy() for f in frames(clip)}
    for frame in frames(clip, start=0.9):
        assert (frame.surface.data == whole[frame.index]).all()


def test_index_and_time_continue_over_a_loop(clip):
    taken = list(frames(clip, loop=3))
    assert [f.index for f in taken] == list(range(150))
    assert [f.pts_s for f in taken] == pytest.approx([i / 25 for i in range(150)])
    assert (taken[0].surface.data == taken[50].surface.data).all()


def test_an_endless_loop_is_closed(clip):
    endless = frames(clip, loop=True)
    assert [next(endless).index for _ in range(120)][-1] == 119
    endless.close()


@pytest.mark.parametrize(
    ("source_options", "text"),
    [
        ({"start": 100.0}, r"a\.mp4: no frame between start 100 s and end; the video is 2 s long$"),
        ({"start": 9.0, "loop": True}, "no frame between start 9 s and end; the video"),
        ({"start": 0.01, "end": 0.03}, r"between start 0\.01 s and end 0\.03 s; the video"),
        ({"start": 1.8, "every": 30}, r"no frame whose number is a multiple of every, 30, between start 1\.8 s"),
        ({"start": 1.7, "keyframes": True}, r"no keyframe between start 1\.7 s and end; the video is 2 s long$"),
        ({"start": 1.7, "keyframes": True, "loop": True}, r"no keyframe between start 1\.7 s and end"),
    ],
)
def test_a_selection_without_frames_is_an_error(clip, source_options, text):
    with pytest.raises(SourceError, match=text):
        list(frames(clip, **source_options))


def test_options_that_conflict_with_keyframes_are_refused():
    with pytest.raises(ValueError, match=r"every must be 1 with keyframes, got 3: .*use fps to reduce them"):
        VideoSource(uri="a.mp4", keyframes=True, every=3)
    with pytest.raises(ValueError, match="decoders must be 1 or auto with keyframes, got 2"):
        VideoSource(uri="a.mp4", keyframes=True, decoders=2)


def test_keyframes_are_paced_by_their_times(clip):
    taken = list(frames(clip, keyframes=True, pace="realtime", pace_seed=1))
    assert [f.index for f in taken] == [0, 10, 20, 30, 40]
    assert [b.due_s - a.due_s for a, b in itertools.pairwise(taken)] == pytest.approx([0.4] * 4)


def test_a_pipeline_reads_keyframes_only(run_pipeline, clip):
    text = f"""
        sources: {{a: {{uri: "{clip}", keyframes: true}}, b: {{uri: "{clip}"}}}}
        stages: {{collect: {{}}}}
    """
    outcome = run_pipeline(text)
    assert (outcome.code, outcome.logged) == (0, [])
    assert [frame_record["frame"] for frame_record in outcome.records["a"]] == [0, 10, 20, 30, 40]
    assert [frame_record["frame"] for frame_record in outcome.records["b"]] == list(range(50))


def test_a_camera_delivers_keyframes_only(rtsp, tmp_path):
    path = write(tmp_path / "a.mp4", 128, 96, 150, options={"g": "10", "bf": "0"})
    source = VideoSource(uri=rtsp({"a": path}).url("a"), keyframes=True)
    source.context = Context(id="cam")
    stream = source.frames()
    taken = [next(stream) for _ in range(4)]
    source.stop()
    stream.close()
    assert [b.index - a.index for a, b in itertools.pairwise(taken)] == [10] * 3
    assert [b.pts_s - a.pts_s for a, b in itertools.pairwise(taken)] == pytest.approx([0.4] * 3, abs=0.01)
    assert all(f.due_s is not None and f.time_s is not None for f in taken)


def test_invalid_videos_are_reported():
    with pytest.raises(ValueError, match="end must be after start, got start 3 s and end 3 s"):
        VideoSource(uri="a.mp4", start=3.0, end=3.0)
    with pytest.raises(ValueError, match="did you mean 'rtsp'"):
        VideoSource(uri="rstp://h/s")


def test_times_are_relative_to_the_first_frame(test_data):
    path = test_data / "videos" / "codec" / "test_non_zero_start.mp4"
    taken = list(frames(path, start=0.2))
    assert [f.index for f in taken] == list(range(6, 12))
    assert taken[0].pts_s == pytest.approx(8.3330078125 + 0.2)


def test_a_file_can_be_paced_like_a_camera(clip):
    begin = time.monotonic()
    taken = []
    for frame in frames(clip, pace=100.0, end=0.4, pace_seed=3):
        assert time.monotonic() >= frame.due_s
        taken.append(frame)
    steps = [b.due_s - a.due_s for a, b in itertools.pairwise(taken)]
    assert steps == pytest.approx([0.01] * 9)
    assert begin <= taken[0].due_s
    assert time.monotonic() - begin >= 0.09


def test_realtime_uses_the_times_of_the_video(tmp_path):
    path = write(tmp_path / "a.mkv", frames=4, ticks=[0, 10, 50, 90])
    due = [f.due_s for f in frames(path, pace="realtime")]
    assert [d - due[0] for d in due] == pytest.approx([0, 0.01, 0.05, 0.09])


def test_the_phase_depends_on_seed_and_source():
    from streamkit.media.pacing import Pacer

    def phase(seed, source):
        pacer = Pacer("realtime", 0.04, seed, source)
        return pacer.due_s(0, 0.0) - time.monotonic()

    assert phase(1, "a") == pytest.approx(phase(1, "a"), abs=1e-3)
    assert len({round(phase(1, name), 3) for name in "abcdefgh"}) > 3
    assert all(-1e-3 < phase(None, "a") < 0.04 for _ in range(20))


def test_stop_ends_a_wait(clip):
    source = VideoSource(uri=str(clip), pace=0.001, pace_seed=0)
    source.context = Context(id="cam")
    stream = source.frames()
    timer = threading.Timer(0.2, source.stop)
    timer.start()
    assert list(stream) == []
    timer.join()


@pytest.mark.parametrize(("rotation", "size"), [(0, (96, 64)), (90, (64, 96))])
def test_source_facts_have_the_size_of_frames(tmp_path, rotation, size):
    source = VideoSource(uri=str(write(tmp_path / "a.mp4", 96, 64, 3, rotation=rotation)))
    source.context = Context(id="cam")
    shown = {(frame.width, frame.height) for frame in source.frames()}
    assert shown == {(source.context.runtime.facts["width"], source.context.runtime.facts["height"])} == {size}


def test_closing_releases_all_resources(tmp_path):
    keep = shared_pool(Device())
    # the pool is the whole process's: a size of its own tells this video's pictures from what other tests still hold
    stream = frames(write(tmp_path / "a.mp4", 70, 50, options={"g": "10", "bf": "2"}))
    frame = next(stream)
    assert "70x50" in keep.held
    stream.close()
    del frame, stream
    assert "70x50" not in keep.held


def test_options_are_read_with_their_units():
    values = model_of(VideoSource).validate_python(
        {"uri": "a", "start": "500ms", "end": "1min", "loop": 3, "pace": "realtime", "fps": 12}
    )
    assert values == {"uri": "a", "start": 0.5, "end": 60.0, "loop": 3, "pace": "realtime", "fps": 12.0}
    assert model_of(VideoSource).validate_python({"uri": "a", "loop": True, "pace": 25})["loop"] is True
    for wrong in ({"fps": 0}, {"every": 0}, {"loop": -2}, {"pace": "fast"}, {"pace": -1}):
        with pytest.raises(ValueError, match="validation error"):
            model_of(VideoSource).validate_python({"uri": "a", **wrong})


def test_sources_are_registered_and_described():
    registry = default_registry()
    for name in ("source", "images", "test_pattern"):
        kind = registry.get(name)
        assert kind is not None
        assert all(option.help for option in options(kind)), name


@pytest.fixture
def server(clip):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(clip.parent))
    ) as running:
        running.daemon_threads = True
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_a_video_is_read_over_http(server):
    taken = list(frames(f"{server}/a.mp4"))
    assert [f.index for f in taken] == list(range(50))
    assert taken[0].time_s is None


def test_a_missing_video_over_http_is_reported(server):
    with pytest.raises(SourceError, match=r"no such address \(404\)"):
        list(frames(f"{server}/b.mp4"))


def test_hls_is_read(server, clip):
    import av

    folder = clip.parent / "hls"
    folder.mkdir(exist_ok=True)
    with (
        av.open(str(clip)) as clip_file,
        av.open(str(folder / "a.m3u8"), "w", format="hls", options={"hls_time": "1", "hls_list_size": "0"}) as output,
    ):
        stream = output.add_stream_from_template(clip_file.streams.video[0])
        for packet in clip_file.demux(video=0):
            if packet.size:
                packet.stream = stream
                output.mux(packet)
    taken = list(frames(f"{server}/hls/a.m3u8"))
    assert [f.index for f in taken] == list(range(50))


def test_network_sources_are_reopened_unless_disabled():
    def retry(uri, **source_options):
        return VideoSource(uri=uri, **source_options).retry

    assert retry("a.mp4") is None
    assert retry("a.mp4", pace="realtime") is None
    assert retry("rtsp://h/a", reconnect=False) is None
    camera = retry("rtsp://h/a")
    assert (camera.max_wait_s, camera.attempts, camera.give_up_s, camera.frozen_s) == (3.0, None, None, 60.0)
    assert (camera.first, camera.files) == (True, False)
    assert not retry("http://h/a.mp4").first  # it is tried again only once it has shown to be live
    file_retry = retry("a.mp4", reconnect={"max_backoff": 1.0, "attempts": 2, "give_up": 9.0}, freeze_timeout=0.0)
    assert (file_retry.max_wait_s, file_retry.attempts, file_retry.give_up_s, file_retry.frozen_s) == (
        1.0,
        2,
        9.0,
        None,
    )
    assert file_retry.files


@pytest.mark.parametrize("uri", ["rtsp://h/a", "/dev/video0", "http://h/video.cgi"])
def test_possible_cameras_are_unbounded(uri):
    assert VideoSource(uri=uri).unbounded
    assert not VideoSource(uri="http://h/a.mp4").unbounded


@pytest.mark.parametrize("kind", ["source", "test_pattern", "images"])
def test_unpaced_disables_pacing(kind):
    """The default by name, for those who must say so: a file that is paced otherwise."""
    source_type = default_registry().get(kind)
    uri = "test://" if kind == "test_pattern" else "a.mp4"
    assert source_type.spec.has_pace
    named = source_type(uri=uri, pace="unpaced")
    left_out = source_type(uri=uri)
    assert (named.pace, named.unbounded) == (left_out.pace, left_out.unbounded) == (None, False)
    assert source_type(uri=uri, pace="realtime").unbounded
    with pytest.raises(pydantic.ValidationError):
        model_of(source_type).validate_python({"uri": uri, "pace": "slow"})
    assert model_of(source_type).validate_python({"uri": uri, "pace": "unpaced"})["pace"] == "unpaced"
