import pytest

from streamkit.core.errors import SourceError
from streamkit.media.uris import (
    check_scheme,
    device_path,
    is_device,
    is_live,
    is_path,
    local_path,
    may_be_live,
    scheme,
)


def test_kinds():
    assert [scheme(u) for u in ("RTSP://h", "a/b.mp4", "C:\\a", "file:///a")] == ["rtsp", "", "", "file"]
    assert is_path("a.mp4")
    assert is_path("file:///a.mp4")
    assert not is_path("http://h/a.mp4")
    assert local_path("file:///a.mp4") == "/a.mp4"
    assert is_live("rtsp://h/s")
    assert not is_live("http://h/a.mp4")


@pytest.mark.parametrize(
    "uri",
    ["a.mp4", "/dev/video0", "C:\\a", "test://"]
    + [f"{s}://h/a" for s in ("file", "http", "HTTPS", "hls", "rtsp", "rtsps", "rtmp", "rtmps")]
    + [f"{s}://h/a" for s in ("udp", "tcp", "srt", "rtp")],
)
def test_known_schemes(uri):
    check_scheme(uri)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("htp://x", "^htp://x: there is no scheme htp://; did you mean 'http'"),
        ("rstp://u:secret@h/s", r"^rstp://u:\*\*\*@h/s: there is no scheme rstp://; did you mean 'rtsp'"),
        (
            "ftp://u:secret@h/x.mp4",
            r"^ftp://u:\*\*\*@h/x.mp4: a run does not read ftp://; download the file and name its "
            "path, or use `streamkit batch`, which reads ftp://$",
        ),
        ("s3://bucket/x.mp4", "^s3://bucket/x.mp4: a run does not read s3://; download"),
        ("GS://bucket/x.mp4", "a run does not read gs://; download .* which reads gs://$"),
        ("ftps://h/x", "^ftps://h/x: ftps:// is not supported; supported: file, http, https, hls, "),
        ("rtmpt://h/x", "^rtmpt://h/x: rtmpt:// is not supported; supported: .*rtmp, rtmps"),
        ("zzz://x", "there is no scheme zzz://; known: file, http, "),
    ],
)
def test_unknown_schemes(uri, text):
    with pytest.raises(SourceError, match=text):
        check_scheme(uri)


@pytest.mark.parametrize("uri", ["/dev/video0", "v4l2:///dev/video12?fps=5"])
def test_a_device_is_no_file(uri):
    assert is_device(uri)
    assert is_live(uri)
    assert not is_path(uri)
    assert device_path(uri).startswith("/dev/video")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("rtsp://h/a.mp4", True),
        ("http://h/video.cgi", True),
        ("https://h/live.m3u8?token=a.mp4", True),
        ("http://h/a.mjpg", True),
        ("http://h/a.mp4?x=1", False),
        ("https://h/a.MKV", False),
        ("a.mp4", False),
        ("/dev/video", False),
    ],
)
def test_where_a_camera_may_be(uri, expected):
    assert may_be_live(uri) == expected
