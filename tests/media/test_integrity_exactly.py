"""What counts as missing or damaged, to the frame and to the tick: the rules alone, without a decoder."""

from types import SimpleNamespace

import pytest

from streamkit.core.errors import SourceError
from streamkit.media.integrity import check_integrity, lost_frames


def read(
    *,
    codec="h264",
    frames=None,
    duration_s=None,
    start_s=0.0,
    live=False,
    packets=100,
    discarded=0,
    damaged=0,
    container="matroska,webm",
    uri="/videos/a.mp4",
    covered_s=None,
):
    """A demuxer at its end: what its header says, and what was read. The packets reach to `covered_s`."""
    info = SimpleNamespace(codec=codec, frames=frames, duration_s=duration_s, start_s=start_s, live=live)
    form = SimpleNamespace(format=SimpleNamespace(name=container))
    return SimpleNamespace(
        info=info,
        uri=uri,
        packets_read=packets,
        discarded=discarded,
        damaged=damaged,
        container=form,
        stream=SimpleNamespace(time_base=0.01),
        covered_ticks=None if covered_s is None else round(covered_s * 100),
    )


def trouble(demuxer, last_s=3.96, shown=100, damage=0, *, whole=True, step_s=0.04):
    """The cause and text of what is raised; None where nothing is."""
    try:
        check_integrity(demuxer, last_s, shown, damage, whole=whole, step_s=step_s)
    except SourceError as error:
        return error.cause, str(error).removeprefix(f"{demuxer.uri}").strip(": ")
    return None


@pytest.mark.parametrize(
    ("counts", "shown", "expected"),
    [
        ({"frames": 100}, 100, 0),
        ({"frames": 100}, 97, 3),
        ({"frames": 100, "discarded": 2}, 97, 1),
        ({"frames": 100, "discarded": 5}, 97, 0),  # never below zero
        ({"frames": 101}, 97, 0),  # not read whole: a file that was cut is another matter
        ({"frames": 99}, 97, 0),
        ({"frames": None}, 97, 0),
        ({"frames": 100, "codec": "hevc"}, 97, 3),
        ({"frames": 100, "codec": "av1"}, 97, 3),
        ({"frames": 100, "codec": "vp9"}, 97, 3),
        ({"frames": 100, "codec": "mpeg4"}, 97, 0),  # a packet may show none
    ],
)
def test_how_many_frames_are_lost(counts, shown, expected):
    assert lost_frames(read(**counts), shown) == expected


@pytest.mark.parametrize(
    ("counts", "how", "expected"),
    [
        ({"duration_s": 4.0}, {}, None),
        # half a second may be missing, or three frames
        ({"duration_s": 4.0}, {"last_s": 3.5}, None),
        ({"duration_s": 4.0}, {"last_s": 3.44}, ("truncated", "3.5 of 4.0 s")),
        ({"duration_s": 40.0}, {"last_s": 36.0, "step_s": 1.0}, None),
        ({"duration_s": 40.0}, {"last_s": 35.75, "step_s": 1.0}, ("truncated", "36.8 of 40.0 s")),
        # measured from where the video begins
        ({"duration_s": 4.0, "start_s": 10.0}, {"last_s": 13.96}, None),
        ({"duration_s": 4.0, "start_s": 10.0}, {"last_s": 4.0}, ("truncated", "-6.0 of 4.0 s")),
        ({"duration_s": 4.0, "live": True}, {"last_s": 1.0, "damage": 5}, None),
        # a clock that restarts: what the packets cover counts
        ({"duration_s": 4.0, "container": "mpegts", "covered_s": 3.96}, {"last_s": 1.96}, None),
        ({"duration_s": 4.0, "container": "mpegts", "covered_s": 3.0}, {"last_s": 1.96}, ("truncated", "3.0 of 4.0 s")),
        # all that the header promises was read: the times are wrong, and nothing is missing
        ({"duration_s": 4.0, "frames": 100}, {"last_s": 2.0}, None),
        ({"duration_s": 4.0, "frames": 101}, {"last_s": 2.0}, ("truncated", "100 of 101 frames, 2.0 of 4.0 s")),
        # 2 % of the frames that are promised and three more may be missing
        ({"frames": 100, "packets": 95}, {}, None),
        ({"frames": 100, "packets": 94}, {"shown": 94}, ("truncated", "94 of 100 frames, 4.0 s")),
        ({"frames": 1000, "packets": 977}, {}, None),
        ({"frames": 1000, "packets": 976}, {"shown": 976}, ("truncated", "976 of 1000 frames, 4.0 s")),
        # of a part of the video no frames are promised
        ({"frames": 200}, {}, ("truncated", "100 of 200 frames, 4.0 s")),
        ({"frames": 200}, {"whole": False}, None),
        ({"duration_s": 9.0, "frames": 100}, {"whole": False}, ("truncated", "4.0 of 9.0 s")),
        # AVI counts places, of which any may be empty
        ({"frames": 200, "container": "avi"}, {}, None),
    ],
)
def test_what_ends_early(counts, how, expected):
    error = trouble(read(**counts), **how)
    if expected is None:
        assert error is None
    else:
        assert error == (expected[0], f"ends early: {expected[1]} could be read; the file is truncated")


@pytest.mark.parametrize(
    ("by_decoder", "by_demuxer", "message"),
    [
        (0, 0, None),
        (1, 0, "1 frame was"),
        (0, 1, "1 frame was"),
        (1, 1, "1 frame was"),
        (2, 3, "3 frames were"),
        (3, 2, "3 frames were"),
        (1234, 0, "1,234 frames were"),
    ],
)
def test_damage_that_either_sees_is_reported_once(by_decoder, by_demuxer, message):
    demuxer = read(damaged=by_demuxer)
    if message is None:
        assert trouble(demuxer, damage=by_decoder) is None
        return
    with pytest.raises(SourceError, match=f"is damaged: {message} lost or concealed") as caught:
        check_integrity(demuxer, 3.96, 100, by_decoder, whole=True, step_s=0.04)
    assert caught.value.cause == "damaged"
    assert caught.value.damaged == max(by_decoder, by_demuxer)


@pytest.mark.parametrize(
    ("counts", "cause"),
    [
        ({"packets": 5}, "damaged"),
        ({"packets": 0, "frames": 10}, "truncated"),
        ({"packets": 0, "duration_s": 4.0}, "truncated"),
        ({"packets": 0}, "empty"),
        ({"packets": 5, "uri": "http://host/a.mp4"}, None),
    ],
)
def test_a_video_without_one_frame(counts, cause):
    with pytest.raises(SourceError, match="no frame could be decoded") as caught:
        check_integrity(read(**counts), None, 0, 0, whole=True, step_s=0.04)
    assert caught.value.cause == cause
    check_integrity(read(**counts), None, 0, 0, whole=False, step_s=0.04)  # a part may hold none
