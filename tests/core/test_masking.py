"""What is hidden of the URIs in a text, and what is shown."""

import time

import pytest

from streamkit.core.masking import mask, mask_address, without_addresses


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rtsp://user:pa:ss@10.0.0.7/s", "rtsp://user:***@10.0.0.7/s"),
        ("rtsp://:secret@host/s", "rtsp://:***@host/s"),
        ("rtsp://TOKEN@host/s", "rtsp://***@host/s"),
        ("sftp://user@host/s", "sftp://user@host/s"),
        ("abfs://container@account.dfs.core.windows.net/a", "abfs://container@account.dfs.core.windows.net/a"),
        ("udp://@239.0.0.1:1234", "udp://@239.0.0.1:1234"),
        ("http://u:p%40@h/a and rtsp://x:y@z/b", "http://u:***@h/a and rtsp://x:***@z/b"),
        ("https://h/a.m3u8?token=abc&x=1&Signature=q", "https://h/a.m3u8?token=***&x=***&Signature=***"),
        ("https://h/a?api_key=abc#t", "https://h/a?api_key=***#***"),
        ("https://h/a?channel=1#t", "https://h/a?channel=1#***"),
        ("rtsp://h/s#KEY", "rtsp://h/s#***"),
        ("rtsp://us/er:pw@h/s", "rtsp://us/***@h/s"),
        ("rtmp://h/live/KEY", "rtmp://h/live/***"),
        ("rtmps://h:443/rtmp/instance/KEY?x", "rtmps://h:443/rtmp/***/***?***"),
        ("rtmp://h/live/", "rtmp://h/live/"),
        ("rtsps://10.0.0.7:7441/aBcDeFgH12345678", "rtsps://10.0.0.7:7441/***"),
        ("rtsp://h/x7k2m9q4z8p1w5t3/0", "rtsp://h/***/0"),
        ("http://h/3f2504e0-4f89-11d3-9a0c-0305e82c3301/a.m3u8", "http://h/***/a.m3u8"),
        ("http://h/eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3.m3u8", "http://h/***.m3u8"),
        ("rtsp://h/abcdefghijklmnopqrstuvwxyzabcdef", "rtsp://h/***"),
        ("rtsp://h/h264Preview_01_main", "rtsp://h/h264Preview_01_main"),
        (
            "rtsp://h/onvif/MediaProfile00101/Camera01Stream02Main",
            "rtsp://h/onvif/MediaProfile00101/Camera01Stream02Main",
        ),
        ("rtsp://h/front-door-camera-of-the-house-2026-01-01", "rtsp://h/front-door-camera-of-the-house-2026-01-01"),
        (
            "s3://bucket/3f2504e0-4f89-11d3-9a0c-0305e82c3301.mp4",
            "s3://bucket/3f2504e0-4f89-11d3-9a0c-0305e82c3301.mp4",
        ),
        (
            "rtsp://10.0.0.7:554/user=admin_password=X_channel=1?pass=Y&loginpas=Z",
            "rtsp://10.0.0.7:554/user=***?pass=***&loginpas=***",
        ),
        ("rtsp://h/user=admin&password=X&channel=1&stream=0.sdp?", "rtsp://h/user=***?"),
        ("rtsp://h/a;jsessionid=X/b/c", "rtsp://h/a;jsessionid=***/b/c"),
        ("rtsp://h/cam/realmonitor?channel=1&subtype=0", "rtsp://h/cam/realmonitor?channel=1&subtype=0"),
        ("rtsp://h/s?channel=a/b", "rtsp://h/s?channel=***"),
        (f"rtsp://h/s?channel={'1' * 32}&subtype={'1' * 33}", f"rtsp://h/s?channel={'1' * 32}&subtype=***"),
        ("rtsps://h:7441/stream?enableSrtp&TCP", "rtsps://h:7441/stream?***&TCP"),
        ("srt://h:9000?mode=caller&passphrase=X&streamid=Y", "srt://h:9000?mode=caller&passphrase=***&streamid=***"),
        ("test://?width=640&height=360&fps=5&frames=9", "test://?width=640&height=360&fps=5&frames=9"),
        (
            "v4l2:///dev/video0?size=1280x720&fps=30&format=mjpeg",
            "v4l2:///dev/video0?size=1280x720&fps=30&format=mjpeg",
        ),
        ("rtsp://h/s?pass=a#b", "rtsp://h/s?pass=***#***"),
        ("rtsp://h/s?pass=a?b;c&d", "rtsp://h/s?pass=***?***;***&***"),
        ("rtsp://h/s#token=a", "rtsp://h/s#token=***"),
        ("rtsp://h/s?token=#x", "rtsp://h/s?token=***#***"),
        ("rtsp://u:pa/ss@10.0.0.7/s", "rtsp://u:***@10.0.0.7/s"),
        ("rtsp://u:p?w#x@h:554/s?channel=1", "rtsp://u:***@h:554/s?channel=1"),
        ("rtsp://u:pa/s@s@h/x", "rtsp://u:***@h/x"),
        ("rtsp://h/user=/x", "rtsp://h/user=/x"),
        ("s3://bucket/TOKEN=X/a.mp4", "s3://bucket/TOKEN=***/a.mp4"),
        ("/live?PassWord=X fails", "/live?PassWord=*** fails"),
        ("rtsp://u:12/34@h/s", "rtsp://u:***@h/s"),
        ("rtsp://u:p@ss@h/s@x", "rtsp://u:***@h/s@x"),
        ("rtsp://h:554/s?x=a@b", "rtsp://h:554/s?x=***"),
        ("rtsp://[::1]/a@b", "rtsp://[::1]/a@b"),
        ("rtsp://[::1]:554/s", "rtsp://[::1]:554/s"),
        ("cannot open 'rtsp://u:p@h/s?pass=Y': refused", "cannot open 'rtsp://u:***@h/s?pass=***': refused"),
        ("(rtsp://h/user=X), and rtsp://h/a: no", "(rtsp://h/user=***), and rtsp://h/a: no"),
        ('{"uri":"rtsp://a:b@h/x","to":"rtsp://c:d@h/y"}', '{"uri":"rtsp://a:***@h/x","to":"rtsp://c:***@h/y"}'),
        ("http://proxy/?u=rtsp://a:b@h/s", "http://proxy/?u=***rtsp://a:***@h/s"),
        ("s3://bucket/date=2026-01-01/a.mp4", "s3://bucket/date=2026-01-01/a.mp4"),
        ("S3://bucket/token=X/cam?.mp4", "S3://bucket/token=***/cam?.mp4"),
        ("file:///clips/day=3/a.mp4", "file:///clips/day=3/a.mp4"),
        ("https://h/date=2026-01-01/a.mp4", "https://h/date=***/a.mp4"),
        ("clips/day=3/a?x=1.mp4", "clips/day=3/a?x=1.mp4"),
        ("/live?loginpas=X&pwd=Y is not there", "/live?loginpas=***&pwd=*** is not there"),
        ("DESCRIBE /user=admin_password=X_channel=1 failed", "DESCRIBE /user=admin_password=*** failed"),
        ("bypassword=1, passwords=2, sasl.password=X", "bypassword=1, passwords=2, sasl.password=***"),
        ("://x:y@z", "://x:***@z"),
        ("a > b and c = d://", "a > b and c = d://"),
        ("clips/a@b:c.mp4", "clips/a@b:c.mp4"),
        ("http://h/a@b", "http://h/a@b"),
    ],
)
def test_secrets_are_masked(text, shown):
    assert mask(text) == shown
    assert mask(shown) == shown


def test_masking_time_is_linear_in_the_length():
    began = time.process_time()
    for piece in ("a", "a:", "://", "x://", "rtsp://h/=", "?&;#", "@:", "pass"):
        mask(piece * 30_000)
    assert time.process_time() - began < 10  # some 0.5 s; by its square it would be hours


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://h/date=2026-01-01/a.mp4", "https://h/date=2026-01-01/a.mp4"),
        ("https://h/login=X/a.mp4?v=3", "https://h/login=***/a.mp4?v=***"),
        ("https://u:p@h/a", "https://u:***@h/a"),
        ("https://h/3f2504e0-4f89-11d3-9a0c-0305e82c3301.mp4", "https://h/3f2504e0-4f89-11d3-9a0c-0305e82c3301.mp4"),
    ],
)
def test_partitions_of_a_data_set_are_not_masked(text, shown):
    assert mask(text, partitions=True) == shown


def test_an_address_with_blanks_is_masked_completely():
    assert mask_address("rtsp://u:pa ss\r\nword@h/s") == "rtsp://u:***@h/s"
    assert mask_address("clips/front door.mp4") == "clips/front door.mp4"


def test_addresses_can_be_removed_from_texts():
    assert without_addresses("rtsp://u:p@10.0.0.7/s?pass=X: refused") == "rtsp://...: refused"
    assert without_addresses("moved to 'http://10.0.0.8/x', RTSP://h") == "moved to 'http://...', RTSP://..."
    assert without_addresses("connection refused: /dev/video0") == "connection refused: /dev/video0"
    assert without_addresses("Error 111 connecting to 10.0.0.7:6379. Refused") == "Error 111 connecting to .... Refused"
    assert without_addresses("no route to [fd00::7]:554, 10.0.0.7: lost") == "no route to ..., ...: lost"
    assert without_addresses("at 12:30:45: version 1.2.3, 1.2.3.4.5") == "at 12:30:45: version 1.2.3, 1.2.3.4.5"
