import pytest

from streamkit.core.errors import SourceError
from streamkit.media.uris import (
    check_address,
    device_path,
    is_device,
    is_live,
    is_path,
    local_path,
    may_be_live,
    scheme,
)


def test_the_kind_of_an_address_is_recognized():
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
def test_supported_schemes_are_accepted(uri):
    check_address(uri)


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
def test_unknown_schemes_are_refused(uri, text):
    with pytest.raises(SourceError, match=text):
        check_address(uri)


@pytest.mark.parametrize("sign", ["\r\n", "\n", "\0", "\t", " ", "\x7f", "\x85", "\u2028", "\xa0"])
@pytest.mark.parametrize(
    "place", ["rtsp://h{}/a", "http://h/a{}SET", "v4l2:///dev/video0?size={}", "test://?a={}", "zz://{}"]
)
def test_addresses_with_line_breaks_control_characters_or_blanks_are_refused(place, sign):
    with pytest.raises(SourceError, match=r"^\w+://\.\.\.: the address must have no (line ends|blanks)"):
        check_address(place.format(sign))


def test_a_message_about_characters_shows_no_part_of_the_address():
    with pytest.raises(SourceError) as raised:
        check_address("rtsp://ann:geheim 4711@10.0.0.7/s")
    assert str(raised.value) == (
        "rtsp://...: the address must have no blanks, and character 18 is a blank: remove it, or write %20 for it"
    )


@pytest.mark.parametrize("path", ["a\nb.mp4", "front door.mp4", "file:///clips/front door.mp4"])
def test_paths_may_have_any_characters(path):
    check_address(path)


@pytest.mark.parametrize("uri", ["rtsp://a%0d%0ab:c@h/s", "rtsp://a:b%00c@h/s", "rtsp://a:%7F@h/s"])
def test_escaped_control_characters_in_a_login_are_refused(uri):
    with pytest.raises(SourceError, match=r"^rtsp://\.\.\.: the address must have no control characters in its user"):
        check_address(uri)


@pytest.mark.parametrize(
    "uri", ["rtsp://a:b%23c@h/s%0a", "rtsp://h/?text=a%0ab@c", "udp://@239.0.0.1:1234", "srt://:9"]
)
def test_other_escapes_and_empty_parts_are_accepted(uri):
    check_address(uri)


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("rtsp://ann:ge#heim@h/s", r"^rtsp://ann:\*\*\*@h/s: the port must be a number .*; in a user name .*%23 for #"),
        ("rtsp://ann:ge?heim@h/s", r"^rtsp://ann:\*\*\*@h/s: .*%3F for \?"),
        ("rtsp://ann:ge/heim@h/s", r"^rtsp://ann:\*\*\*@h/s: .*%2F for /"),
        ("rtsp://h:port/s", "^rtsp://h:port/s: the port must be a number from 1 to 65535$"),
        ("rtsp://h:65536/s", "the port must be a number"),
        ("rtsp://[::1", r"^rtsp://\[::1: an IPv6 address stands in brackets"),
    ],
)
def test_an_invalid_port_is_refused(uri, text):
    with pytest.raises(SourceError, match=text):
        check_address(uri)


@pytest.mark.parametrize("uri", ["/dev/video0", "v4l2:///dev/video12?fps=5"])
def test_a_device_is_not_a_file(uri):
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
def test_addresses_that_may_be_live_are_recognized(uri, expected):
    assert may_be_live(uri) == expected
