"""Encrypted video is not read, and its message says that it is encrypted."""

import av
import pytest
from support.clips import shifted, write

from streamkit.core.counters import Counters
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context
from streamkit.media.encryption import is_scrambled
from streamkit.stages.sources.source import VideoSource

CENC = {
    "encryption_scheme": "cenc-aes-ctr",
    "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb",
    "encryption_kid": "a7e61c373e219033c21091fa607bf3b8",
}


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write(tmp_path_factory.mktemp("clips") / "a.nut", frames=50, options={"bf": "0", "g": "10"})


def refused(path, **options):
    """The message about an encrypted video, and the number of its frames that were read before."""
    source = VideoSource(uri=str(path), **options)
    source.context = Context("cam", counters=Counters())
    count = 0
    with pytest.raises(SourceError, match="is encrypted") as caught:  # noqa: PT012 it may come after frames
        for _ in source.frames():
            count += 1
    assert caught.value.cause == "codec"
    assert source.context.counters.values == {}
    return str(caught.value), count


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
@pytest.mark.parametrize("movflags", ["faststart", "frag_keyframe+empty_moov"])
@pytest.mark.parametrize("options", [{}, {"decoders": 2}, {"keyframes": True}])
def test_common_encryption_in_mp4_is_reported(tmp_path, codec, movflags, options):
    first = write(tmp_path / "a.nut", frames=50, codec=codec, options={"bf": "0", "g": "10"})
    path = shifted(tmp_path / "a.mp4", first, 0.0, movflags=movflags, **CENC)
    assert refused(path, **options) == (f"{path}: the video is encrypted, and cannot be read; decrypt it first", 0)


def test_the_scheme_of_streaming_services_is_reported(tmp_path, clip):
    path = shifted(tmp_path / "a.mp4", clip, 0.0, **CENC)
    scheme = b"schm\0\0\0\0"
    path.write_bytes(path.read_bytes().replace(scheme + b"cenc", scheme + b"cbcs"))
    assert refused(path)[1] == 0


def vint(number):
    """A number of EBML in eight bytes."""
    return (1 << 56 | number).to_bytes(8, "big")


def element(name, body):
    return bytes.fromhex(name) + vint(len(body)) + body


def with_encoding(path):
    """Mark the only track of a WebM file as encrypted (RFC 9559, 5.1.4.1.31)."""
    encryption = element("47E1", b"\5") + element("47E2", bytes(16)) + element("47E7", element("47E8", b"\1"))
    encoding = element("5031", b"\0") + element("5032", b"\1") + element("5033", b"\1") + element("5035", encryption)
    encodings = element("6D80", element("6240", encoding))
    content = path.read_bytes()
    tracks = content.rindex(bytes.fromhex("1654AE6B"))  # the first one is in the table of contents
    entry, tracks_size = read_vint(content, tracks + 4)
    assert content[entry] == 0xAE
    begin, size = read_vint(content, entry + 1)
    body = content[begin : begin + size] + encodings
    rest = content[entry + tracks_size :]
    path.write_bytes(content[:tracks] + element("1654AE6B", element("AE", body)) + rest)
    return path


def read_vint(content, at):
    """Where the body of an element begins, and its size, from the place of its size."""
    length = 9 - content[at].bit_length()
    size = int.from_bytes(content[at : at + length], "big") & (1 << 7 * length) - 1
    return at + length, size


def test_encrypted_webm_is_reported(tmp_path):
    first = write(tmp_path / "a.nut", frames=20, codec="libvpx", options={"deadline": "realtime"})
    path = with_encoding(shifted(tmp_path / "a.webm", first, 0.0))
    with av.open(str(path)) as container:
        assert "enc_key_id" in container.streams.video[0].metadata
    assert refused(path)[1] == 0


def scramble(path):
    """Scramble the video of a transport stream, as broadcasters do."""
    with av.open(str(path)) as container:
        pid = container.streams.video[0].id
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 188):
        if (content[at + 1] & 0x1F) << 8 | content[at + 2] != pid or not content[at + 3] & 0x10:
            continue
        begin = at + 5 + content[at + 4] if content[at + 3] & 0x20 else at + 4
        content[at + 3] |= 0x80
        for place in range(begin, at + 188):
            content[place] ^= 0x5A
    path.write_bytes(content)
    return path


def test_a_scrambled_transport_stream_is_reported(tmp_path, clip):
    assert refused(scramble(shifted(tmp_path / "a.ts", clip, 0.0)))[1] == 0


def ts_packet(pid, *, control=0x10, sync=0x47):
    return bytes([sync, pid >> 8, pid & 0xFF, control]) + bytes(184)


@pytest.mark.parametrize(
    ("packets", "scrambled"),
    [
        ([ts_packet(0x100), ts_packet(0x101, control=0x90)], False),  # another stream
        ([ts_packet(0x101), ts_packet(0x100, control=0x90)], True),
        ([ts_packet(0x100, control=0x50)], True),
        ([ts_packet(0x100)], False),
        ([ts_packet(0x100, sync=0x48), ts_packet(0x100, control=0x90)], False),  # no transport stream
        ([], False),
    ],
)
def test_scrambling_of_transport_streams_is_detected(packets, scrambled):
    assert is_scrambled(b"".join(packets), 0x100) == scrambled
