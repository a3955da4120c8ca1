"""Frames are freed when their last reader drops them: PyAV's objects can hold themselves, until a full collection."""

import contextlib
import gc
import itertools
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from support.clips import scene, write
from support.http_cameras import http_camera, jpeg, part

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Device, Surface
from streamkit.core.errors import OutputError
from streamkit.core.stage import Context, RuntimeContext
from streamkit.media.encode import TIME_BASE, CpuEncoder, Encoding
from streamkit.media.fragments import FragmentMuxer
from streamkit.media.push import Push
from streamkit.media.ring import PacketRing
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor
from streamkit.stages.sources.images import ImageSource
from streamkit.stages.sources.source import VideoSource
from streamkit.stages.sources.test_pattern import TestPattern

FRAMES = 500


@contextlib.contextmanager
def garbage():
    """Count what a full garbage collection finds of what the block leaves, by type."""
    types = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield types
        gc.collect()
        types.update(type(left).__module__ + "." + type(left).__name__ for left in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.collect()


def garbage_of(source, **runtime):
    """What `FRAMES` frames of a source, after its first one, leave for the garbage collection."""
    source.context = Context("cam", runtime=RuntimeContext(**runtime))
    source.open()
    with contextlib.closing(source.frames()) as frames:
        next(frames)
        with garbage() as left:
            count = sum(1 for _ in itertools.islice(frames, FRAMES))
    source.close()
    assert count == FRAMES
    return left


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=60, options={"g": "10", "bf": "2"})


def test_frames_of_a_file(clip):
    assert not garbage_of(VideoSource(uri=str(clip), loop=True))


def test_frames_of_a_file_over_several_decoders(clip):
    executor = ThreadedExecutor(Device(), 2)
    assert not garbage_of(VideoSource(uri=str(clip), loop=True, decoders=2), executor=executor)


def test_selected_frames_of_a_file(clip):
    assert not garbage_of(VideoSource(uri=str(clip), loop=True, keyframes=True))
    assert not garbage_of(VideoSource(uri=str(clip), loop=True, start=0.5, every=2))


def test_frames_do_not_change_if_packets_are_retained(clip):
    ring = PacketRing(("record",), limit_bytes=1 << 20)
    assert not garbage_of(VideoSource(uri=str(clip), loop=True), packet_buffer=ring)


def test_frames_with_exif(tmp_path):
    path = tmp_path / "camera.mjpeg"
    path.write_bytes(b"".join(jpeg(index, exif_orientation=6) for index in range(FRAMES + 1)))
    assert not garbage_of(VideoSource(uri=str(path)))


def test_frames_of_a_camera_over_http():
    with http_camera(lambda path: (part(jpeg(index, exif_orientation=1)) for index in itertools.count())) as camera:
        assert not garbage_of(VideoSource(uri=camera.url))


def test_frames_of_a_camera_over_rtsp(rtsp, tmp_path):
    fast = write(tmp_path / "fast.mp4", frames=600, rate=600, options={"bf": "0", "g": "60"})
    assert not garbage_of(VideoSource(uri=rtsp({"a": fast}).url("a")))


def test_images(tmp_path):
    for index in range(5):
        Image.fromarray(scene(index, 64, 48)).save(tmp_path / f"{index}.jpg")
    assert not garbage_of(ImageSource(uri=str(tmp_path), loop=True))


def test_the_test_pattern():
    assert not garbage_of(TestPattern(uri="test://?width=64&height=48&frames=0"))


def test_video_for_browsers(clip):
    ring = PacketRing(("record",), limit_bytes=1 << 20)
    source = VideoSource(uri=str(clip))
    source.context = Context("cam", runtime=RuntimeContext(packet_buffer=ring))
    assert len(list(source.frames())) == 60
    with garbage() as left:
        muxer = FragmentMuxer(ring.get(0).stream_format)
        for packet in ring.packets(0, 59):
            muxer.put(packet.data, packet.pts, packet.dts, keyframe=packet.keyframe)
        del muxer
    assert not left


def test_a_push_that_is_refused():
    encoder = CpuEncoder(Encoding(live=True), 64, 48, Color("bt601"), 25, 1, Counters())
    surface = Surface(np.full((72, 64), 128, np.uint8), Color("bt601"))
    with garbage() as left:
        push = Push("rtsp://127.0.0.1:1/a", encoder, 5.0)
        with contextlib.suppress(OutputError):
            for index in itertools.count():
                push.write(surface, round(index / 25 / TIME_BASE))
        del push, encoder
    assert not left
