"""A part of text: when its bytes are written, and when the file is there."""

import pytest

from streamkit.batch.formats import TextPart
from streamkit.core.errors import OutputError


@pytest.fixture
def part(tmp_path):
    text_part = TextPart(path=str(tmp_path / "x" / "key.txt"), names={"key": "a.mp4"})
    text_part.open()
    yield text_part
    text_part.close()


def sizes(folder):
    """Of the files, by what their names end with."""
    return {path.suffix: path.stat().st_size for path in (folder / "x").iterdir()}


def test_a_text_file_is_written_in_blocks_of_64_kib_and_appears_at_the_end(part, tmp_path):
    part.put(b"a" * 65535)
    assert sizes(tmp_path) == {".part": 0}
    part.put(b"b")
    assert sizes(tmp_path) == {".part": 65536}
    part.put(b"c")
    part.put(b"d" * 70000)
    part.put(b"e")
    assert sizes(tmp_path) == {".part": 65536 + 70001}
    part.end("key")
    assert sizes(tmp_path) == {".txt": 65536 + 70002}
    expected = b"a" * 65535 + b"bc" + b"d" * 70000 + b"e"
    assert (tmp_path / "x" / "key.txt").read_bytes() == expected


def test_a_short_write_continues_after_the_written_bytes(part, tmp_path):
    class Short:
        def __init__(self, file):
            self.file = file
            self.close = file.close

        def write(self, data):
            return self.file.write(data[:3])

    part._file._out = Short(part._file._out)
    part.put(b"0123456789")
    part.end("key")
    assert (tmp_path / "x" / "key.txt").read_bytes() == b"0123456789"


def test_a_failed_write_leaves_no_file(part, tmp_path):
    class Full:
        def __init__(self, file):
            self.close = file.close

        def write(self, data):
            raise OSError(28, "No space left on device")

    part._file._out = Full(part._file._out)
    with pytest.raises(OutputError, match="the disk is full") as first:
        part.put(b"a" * 65536)
    for again in (lambda: part.put(b"b"), lambda: part.end("key")):
        with pytest.raises(OutputError) as caught:
            again()
        assert caught.value is first.value
    part.close()
    assert sizes(tmp_path) == {}
