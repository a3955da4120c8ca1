"""Frames to write as a video, a `video` sink, and a reader of its files."""

import os

import av
import numpy as np

from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.stage import Context
from streamkit.stages.video.video import Video
from support.messages import collect

BT601 = Color("bt601")


def surface(i, width=64, height=48, color=BT601):
    data = np.full((height * 3 // 2, width), 128, np.uint8)
    data[:height] = 30 + (i * 7) % 180
    return Surface(data, color)


def frame(i, pts_s=None, size=(64, 48), **kwargs):
    pts_s = i / 25 if pts_s is None else pts_s
    pixels = kwargs.pop("surface") if "surface" in kwargs else surface(i, *size)
    return Frame("street", i, pts_s, *size, surface=pixels, **kwargs)


def sink(path, device=None, **options):
    logged = collect()
    video_sink = Video(path=str(path), **options)
    video_sink.context = Context(id="video", device=device or Device())
    video_sink.logged = logged
    video_sink.open()
    return video_sink


def write_all(out, indices):
    for i in indices:
        out.write(frame(i))


def times(path):
    with av.open(str(path)) as back:
        return [frame.pts * frame.time_base for frame in back.decode(video=0)]


def names(folder):
    return sorted(os.listdir(folder))
