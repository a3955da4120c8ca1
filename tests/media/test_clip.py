import os
import subprocess
import sys
import threading

import av
import pytest
from support.clips import write

from streamkit.core.errors import OutputError
from streamkit.io.outputs import sweep
from streamkit.media.clip import Clip
from streamkit.media.ring import TICKS_PER_S, PacketRing


def kept_of(path):
    made = PacketRing(("record",), limit_bytes=1 << 30, guard=threading.Lock())
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        made.begin(stream)
        for packet in source.demux(stream):
            if packet.size:
                made.put(packet)
    return made.take(0, 9999)


@pytest.fixture(scope="module", params=["libx264", "libx265", "mpeg4", "libvpx-vp9"])
def kept(request, tmp_path_factory):
    """50 pictures of each codec, B frames where it has them."""
    options = {"g": "10", "bf": "2"} if request.param.startswith("libx26") else {"g": "10"}
    path = write(tmp_path_factory.mktemp("clips") / "a.mkv", frames=50, codec=request.param, options=options)
    return kept_of(path)


def test_a_clip_has_what_is_shown_between_its_first_and_its_newest_frame(kept, tmp_path):
    """This alone decides whether an event's frame is in the clip."""
    first, last = [k for k in kept if k.keyframe][2:4]
    clip = Clip(tmp_path / "a.mkv", first, {})
    assert [k.number for k in kept if clip.has(k)] == [first.number]
    newest = first.pts
    for one in kept:
        if first.number <= one.number < last.number and clip.write(one):
            newest = max(newest, one.pts)
            inside = [k for k in kept if first.pts <= k.pts <= newest]
            assert [k for k in kept if clip.has(k)] == inside
            assert [k for k in kept if clip.may_end_before(k)] == [k for k in kept if k.pts > newest]
    clip.finish()
    with av.open(str(tmp_path / "a.mkv")) as back:
        assert len([k for k in kept if clip.has(k)]) == sum(1 for _ in back.decode(video=0)) == 10


def test_a_clip_reports_how_long_it_is_and_when_each_picture_is_shown_in_it(kept, tmp_path):
    first = [k for k in kept if k.keyframe][2]
    clip = Clip(tmp_path / "a.mkv", first, {})
    assert clip.duration_s == 0
    shown = sorted(kept, key=lambda k: k.pts)
    begin, longest = shown.index(first), 0
    assert [round(clip.at_s(k), 3) for k in shown] == [round(max(0, i - begin) * 0.04, 3) for i in range(50)]
    for one in kept[first.number :]:
        if clip.write(one):
            longest = max(longest, shown.index(one) - begin + 1)
            assert clip.duration_s == pytest.approx(longest * 0.04, abs=0.001)
    assert longest == 30
    clip.discard()


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_clip_has_its_name_when_its_last_byte_is_written(kept, tmp_path, monkeypatch, suffix):
    seen, replace = [], os.replace

    def looked_at(part, path):
        with av.open(str(part)) as back:
            seen.append(sum(1 for _ in back.decode(video=0)))
        replace(part, path)

    monkeypatch.setattr(os, "replace", looked_at)
    clip = Clip(tmp_path / f"a.{suffix}", kept[0], {})
    assert all(clip.write(one) for one in kept)
    clip.finish()
    assert seen == [50]


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
def test_a_clip_plays_from_its_first_picture(kept, suffix, tmp_path):
    first = [k for k in kept if k.keyframe][2]
    path = tmp_path / "x" / f"c.{suffix}"
    clip = Clip(path, first, {"title": "gate crossed"})
    written = [k for k in kept if k.number >= first.number and clip.write(k)]
    assert not path.exists()
    clip.finish()
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]
    with av.open(str(path)) as back:
        frames = [(round(float(f.time), 3), f.key_frame) for f in back.decode(video=0)]
        assert back.metadata["title"] == "gate crossed"
    assert len(frames) == len(written) == clip.packets
    assert frames[0][1]
    assert frames[0][0] <= (0.1 if suffix == "mkv" else 0.0), "mkv has no negative decoding times: it begins later"
    assert [round(at - frames[0][0], 2) for at, _ in frames] == [round(i * 0.04, 2) for i in range(len(frames))]
    assert clip.at_s(first) == 0
    assert clip.bytes == sum(len(k.data) for k in written)


def test_pictures_before_the_first_keyframe_are_left_out(test_data, tmp_path):
    kept = kept_of(test_data / "videos" / "bench_1080p_hevc_opengop.mp4")
    keyframe = [k for k in kept if k.keyframe][1]
    leading = [k for k in kept if k.number > keyframe.number and k.pts < keyframe.pts]
    assert leading, "an open GOP has pictures that refer to what is before its keyframe"
    clip = Clip(tmp_path / "a.mp4", keyframe, {})
    taken = [clip.write(k) for k in kept if keyframe.number <= k.number < keyframe.number + 40]
    clip.finish()
    assert taken.count(False) == len(leading)
    with av.open(str(tmp_path / "a.mp4")) as back:
        frames = list(back.decode(video=0))
        assert len(frames) == taken.count(True)
        assert not any(frame.is_corrupt for frame in frames)


def test_a_clip_that_is_given_up_leaves_nothing(kept, tmp_path):
    clip = Clip(tmp_path / "a.mkv", kept[0], {})
    clip.write(kept[0])
    clip.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be(kept, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        Clip(tmp_path / "file" / "a.mkv", kept[0], {})


def test_a_codec_that_the_container_does_not_take(test_data, tmp_path):
    kept = kept_of(next((test_data / "videos" / "codec").glob("*vp8*")))
    with pytest.raises(OutputError, match="cannot write"):  # noqa: PT012 the header is written with the first packet
        clip = Clip(tmp_path / "a.mp4", kept[0], {})
        clip.write(kept[0])
    assert list(tmp_path.iterdir()) == []


def test_half_a_clip_is_left_alone_while_somebody_writes_it(kept, tmp_path):
    clip = Clip(tmp_path / "a.mkv", kept[0], {})
    part = tmp_path / ".a.mkv.part"
    look = f"from pathlib import Path; from streamkit.io.outputs import sweep; print(sweep(Path({str(part)!r})))"
    for _ in range(2):
        seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
        assert seen.stdout.strip() == "False"
        assert not sweep(part)
        assert part.exists()
        clip.write(kept[0])
    clip.finish()
    part.touch()
    assert sweep(part)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mkv"]
    assert kept[-1].pts > 1 * TICKS_PER_S
