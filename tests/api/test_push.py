"""Images that a program pushes: what comes out, what waits, what is refused."""

import gc
import threading
import time
from typing import Any

import numpy as np
import pytest
from PIL import Image

import streamkit
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.records import record
from streamkit.ops.color import rgb

STREET = "samples/street.mp4"
GRAY = np.full((36, 64, 3), 128, np.uint8)


class Shared:
    """An array behind DLPack only, as a tensor of another library is."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Frames of the street as image files: the folder, and the same as arrays."""
    folder = tmp_path_factory.mktemp("images")
    arrays = []
    for frame in streamkit.run(STREET, model="demo", device="cpu", limit=6):
        arrays.append(rgb(frame))
        Image.fromarray(arrays[-1]).save(folder / f"{frame.index}.png")
    return folder, arrays


@pytest.fixture
def pushing():
    """A pipeline with one push source, started without a loop where `loop` is not set; closed at the end."""
    pipelines = []

    def make(source, device="cpu", **options):
        pipelines.append(streamkit.Pipeline({"cam": source}, model="demo", device=device, **options))
        return pipelines[-1]

    yield make
    for pipeline in pipelines:
        pipeline.close()


def push_many(pipeline, count):
    for _ in range(count):
        pipeline.push("cam", GRAY)


def pushed_records(pipeline, arrays, times=None):
    """The records of pushed images; pushed on a thread while a loop reads."""

    def push():
        for number, array in enumerate(arrays):
            pipeline.push("cam", array, None if times is None else times[number])
        pipeline.end("cam")

    thread = threading.Thread(target=push)
    thread.start()
    records = [{**record(frame), "source": "cam"} for frame in pipeline]
    thread.join()
    return records


@pytest.mark.parametrize("shared", [False, True])
def test_pushed_images_give_the_records_of_image_files(images, pushing, shared):
    folder, arrays = images
    wanted = [{**record(frame), "source": "cam"} for frame in streamkit.run(folder, model="demo", device="cpu")]
    assert any(row["objects"] for row in wanted)
    pushed_images = [Shared(array) for array in arrays] if shared else arrays
    assert pushed_records(pushing(streamkit.PushSource(640, 360, fps=1)), pushed_images) == wanted


def test_bgr_images_are_converted_like_opencv(images, pushing):
    _, arrays = images
    wanted = pushed_records(pushing(streamkit.PushSource(fps=1)), arrays)
    bgr = [array[..., ::-1] for array in arrays]
    assert pushed_records(pushing(streamkit.PushSource(fps=1, channels="bgr")), bgr) == wanted


def test_a_pushed_image_may_be_changed_at_once(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    image = GRAY.copy()
    for value in (40, 80, 120):
        image[:] = value
        pipeline.push("cam", image)
    pipeline.end("cam")
    assert [int(frame.surface.data[0, 0]) for frame in pipeline] == [40, 80, 120]


def test_times_are_given_or_counted(pushing):
    records = pushed_records(pushing(streamkit.PushSource()), [GRAY] * 3, [0.0, 0.5, np.float32(2)])
    assert [row["time"] if "time" in row else row["pts_s"] for row in records] == [0.0, 0.5, 2.0]
    counted = pushed_records(pushing(streamkit.PushSource(fps=4)), [GRAY] * 3)
    assert [row["time"] if "time" in row else row["pts_s"] for row in counted] == [0.0, 0.25, 0.5]


def test_push_waits_for_a_slow_loop_and_loses_nothing(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    pushed = []

    def push():
        for number in range(100):
            pipeline.push("cam", GRAY)
            pushed.append(number)
        pipeline.end("cam")

    thread = threading.Thread(target=push)
    thread.start()
    frames = iter(pipeline)
    next(frames)
    time.sleep(0.5)
    assert len(pushed) < 90  # the queues are full
    assert [frame.index for frame in frames] == list(range(1, 100))
    thread.join()


def test_a_live_push_never_waits_and_drops_are_counted(pushing):
    pipeline = pushing(streamkit.PushSource(live=True))
    frames = iter(pipeline)
    for _ in range(300):  # nobody reads the frames meanwhile
        pipeline.push("cam", GRAY)
        time.sleep(0.001)
    pipeline.end("cam")
    pts = [frame.pts_s for frame in frames]
    counts = pipeline.report["counts"]
    assert pts == sorted(set(pts))
    assert len(pts) + sum(n for name, n in counts.items() if name.startswith("frames dropped")) == 300
    assert len(pts) < 300


def test_a_single_thread_may_push_and_read_in_turn(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    frames = iter(pipeline)
    indices = []
    for _ in range(5):
        pipeline.push("cam", GRAY)
        indices.append(next(frames).index)
    pipeline.end("cam")
    assert [*indices, *(frame.index for frame in frames)] == [0, 1, 2, 3, 4]


def test_a_push_that_would_deadlock_is_refused(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    pipeline.push("cam", GRAY)
    next(iter(pipeline))
    with pytest.raises(streamkit.StreamkitError, match="push would wait forever"):
        push_many(pipeline, 200)


def test_a_push_waits_a_bounded_time_for_the_run_to_start(pushing, monkeypatch):
    monkeypatch.setattr("streamkit.api.pipeline._START_S", 0.3)
    pipeline = pushing(streamkit.PushSource(fps=25))
    with pytest.raises(streamkit.StreamkitError, match="waits for the pipeline to begin: iterate over it, or call"):
        push_many(pipeline, 10)


def test_a_waiting_push_ends_with_the_pipeline(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    errors = []

    def push():
        try:
            while True:
                pipeline.push("cam", GRAY)
        except streamkit.PipelineEnded as error:
            errors.append(str(error))

    thread = threading.Thread(target=push)
    thread.start()
    next(iter(pipeline))
    time.sleep(0.2)
    pipeline.close()
    thread.join(5)
    assert errors == ["the pipeline has ended; create another one"]


def frames_in_memory(source):
    """The number of frames of a source that something refers to."""
    gc.collect()
    return sum(isinstance(candidate, Frame) and candidate.source == source for candidate in gc.get_objects())


def push_in_thread(pipeline):
    """Push more images than a queue holds; return the thread, and its errors, whose traceback keeps the last image."""
    errors: list[BaseException] = []

    def push():
        try:
            push_many(pipeline, 10_000)
        except streamkit.StreamkitError as error:
            errors.append(error)

    thread = threading.Thread(target=push)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("started", [False, True])
def test_a_waiting_push_ends_with_its_source(pushing, started):
    pipeline = pushing(streamkit.PushSource(fps=25))
    if started:
        next_frame = iter(pipeline)
        pipeline.push("cam", GRAY)
        next(next_frame)
    thread, errors = push_in_thread(pipeline)
    time.sleep(0.3)
    assert thread.is_alive()  # nothing reads its images
    pipeline.remove_source("cam")
    thread.join()
    (error,) = errors
    assert isinstance(error, streamkit.PipelineEnded)
    assert "source cam has ended" in str(error)


def test_waiting_images_are_freed_with_their_source(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    thread, errors = push_in_thread(pipeline)
    while frames_in_memory("cam") < 5:  # four wait in the queue, and one for room in it
        time.sleep(0.01)
    pipeline.remove_source("cam")
    thread.join()
    assert len(errors) == 1
    assert frames_in_memory("cam") == 1


def test_push_sources_are_added_and_removed(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    pipeline.start()
    assert pipeline.add_source("more", streamkit.PushSource(fps=25)) == ["more"]
    pipeline.push("more", GRAY[:20])
    pipeline.remove_source("more")
    with pytest.raises(ConfigError, match=r"no push source 'more'; known: cam; add_source\('more', PushSource\(\)\)"):
        pipeline.push("more", GRAY)
    pipeline.push("cam", GRAY)
    pipeline.end("cam")
    with pytest.raises(streamkit.PipelineEnded, match=r"(source cam|the pipeline) has ended"):
        pipeline.push("cam", GRAY)
    assert pipeline.wait()["sources"]["cam"] == {"frames": 1}
    with pytest.raises(streamkit.PipelineEnded, match="the pipeline has ended"):
        pipeline.push("cam", GRAY)


def test_an_ended_source_says_so_before_it_looks_at_the_image(pushing):
    pipeline = pushing(streamkit.PushSource(fps=25))
    pipeline.push("cam", GRAY)
    pipeline.end("cam")
    with pytest.raises(streamkit.PipelineEnded, match="source cam has ended"):
        pipeline.push("cam", GRAY[:20])


@pytest.mark.parametrize(
    ("image", "pts_s", "error", "text"),
    [
        ("image.png", None, TypeError, r"got str; convert it, as in numpy\.asarray"),
        (GRAY.tolist(), None, TypeError, "got list"),
        (GRAY[..., 0], None, ValueError, r"got uint8\[36, 64\]; repeat the gray values"),
        (GRAY.transpose(2, 0, 1), None, ValueError, "the channels come last: image.transpose"),
        (np.zeros((36, 64, 4), np.uint8), None, ValueError, "leave out the alpha channel"),
        (GRAY[None], None, ValueError, "one by one"),
        (GRAY / np.float32(255), None, ValueError, r"got float32\[36, 64, 3\]; convert it, as in \(image \* 255\)"),
        (GRAY.astype(np.int32), None, ValueError, r"as in image\.astype"),
        (GRAY[:20], None, ValueError, r"one size, 64x36, got 64x20 \(width x height\); resize"),
        (GRAY, 1.0, ValueError, "pts_s must rise from frame to frame, got 1 s after 1 s"),
        (GRAY, float("nan"), ValueError, "pts_s must be a finite number"),
        (GRAY, "soon", TypeError, "pts_s must be a number of seconds, got 'soon'"),
        (GRAY, None, ValueError, r"needs its time: push it with pts_s, in seconds, or set fps"),
    ],
)
def test_an_unsuitable_image_is_refused_with_the_fix(pushing, image, pts_s, error, text):
    pipeline = pushing(streamkit.PushSource())
    pipeline.push("cam", GRAY, 1.0)
    with pytest.raises(error, match=text):
        pipeline.push("cam", image, pts_s)
    pipeline.push("cam", GRAY, 2.0)
    pipeline.end("cam")
    assert [(frame.index, frame.pts_s) for frame in pipeline] == [(0, 1.0), (1, 2.0)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"width": 0}, "width must be at least 2 pixels, got 0"),
        ({"height": 3.5}, "height must be a whole number of pixels, got 3.5"),
        ({"fps": 0}, "fps must be a number above 0"),
        ({"channels": "BGR"}, "channels must be 'rgb' or 'bgr', got 'BGR'"),
    ],
)
def test_an_invalid_push_source_is_refused(values, text):
    with pytest.raises(ValueError, match=text):
        streamkit.PushSource(**values)


def test_numpy_integers_are_accepted_as_sizes():
    source = streamkit.PushSource(width=np.int64(6), height=np.int32(4))
    assert (source.width, source.height) == (6, 4)
    with pytest.raises(ValueError, match="width must be at least 2 pixels, got 1"):
        streamkit.PushSource(width=np.int64(1))


@pytest.mark.parametrize("pts_s", [float("nan"), float("inf")])
def test_the_first_time_is_a_finite_number(pushing, pts_s):
    pipeline = pushing(streamkit.PushSource())
    with pytest.raises(ValueError, match="pts_s must be a finite number of seconds, got"):
        pipeline.push("cam", GRAY, pts_s)


def test_a_source_that_is_read_refuses_pushed_images():
    pipeline = streamkit.Pipeline({"a": STREET}, model="demo", device="cpu")
    with pytest.raises(ConfigError, match="source 'a' is read, not pushed"):
        pipeline.push("a", GRAY)


@pytest.mark.gpu
@pytest.mark.parametrize("channels", ["rgb", "bgr"])
def test_images_on_the_gpu_are_converted_there(images, pushing, channels):
    import cupy

    from streamkit.ops import traffic

    _, arrays = images
    ordered = [array[..., ::-1] if channels == "bgr" else array for array in arrays]
    host = pushing(streamkit.PushSource(fps=1, channels=channels), device="cuda")
    wanted = pushed_records(host, ordered)
    assert host.report["counts"]["pixels to device"] == len(arrays)
    on_gpu = [cupy.asarray(array) for array in ordered]
    before = traffic.so_far()
    pipeline = pushing(streamkit.PushSource(fps=1, channels=channels), device="cuda")
    records = pushed_records(pipeline, on_gpu)
    assert not [name for name in pipeline.report["counts"] if name.startswith("pixels to")]
    assert traffic.so_far().to_device - before.to_device < arrays[0].nbytes
    assert len(records) == len(wanted)
    for record_on_gpu, other in zip(records, wanted, strict=True):
        assert len(record_on_gpu["objects"]) == len(other["objects"])
        for detected, its in zip(record_on_gpu["objects"], other["objects"], strict=True):
            assert detected["label"] == its["label"]
            np.testing.assert_allclose(detected["box"], its["box"], atol=2)


@pytest.mark.gpu
def test_images_on_the_gpu_reach_a_pipeline_on_the_cpu_by_a_counted_copy(images, pushing):
    import cupy

    _, arrays = images
    wanted = pushed_records(pushing(streamkit.PushSource(fps=1)), arrays)
    pipeline = pushing(streamkit.PushSource(fps=1))
    assert pushed_records(pipeline, [Shared(cupy.asarray(array)) for array in arrays]) == wanted
    assert pipeline.report["counts"]["pixels to host"] == len(arrays)


@pytest.mark.gpu
def test_a_gpu_image_may_be_changed_at_once(pushing):
    import cupy

    pipeline = pushing(streamkit.PushSource(fps=25), device="cuda")
    image = cupy.asarray(GRAY)
    for value in (40, 80, 120):
        image[:] = value
        pipeline.push("cam", image)
    pipeline.end("cam")
    assert [int(frame.surface.data[0, 0]) for frame in pipeline] == [40, 80, 120]
