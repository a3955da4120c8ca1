import errno
import os

import av
import numpy as np
import pytest
from support.clips import write
from support.unprivileged import without_rights

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media.link import ConnectionOptions
from streamkit.media.reader import VideoReader
from streamkit.media.source_errors import cannot_open, check_file
from streamkit.media.surfaces import SurfacePool


def failure(uri, device=Device()):  # noqa: B008  # a frozen value
    """How many frames came, and the error."""
    count = 0
    counters = Counters()
    with pytest.raises(SourceError) as caught:  # noqa: PT012  # frames come before the error
        reader = VideoReader(str(uri), device, SurfacePool(device), counters, link=ConnectionOptions(2))
        try:
            for _ in reader.frames():
                count += 1
        finally:
            reader.close()
    assert "\n" not in str(caught.value)
    return count, str(caught.value), counters


def test_a_missing_file_is_reported(tmp_path):
    assert failure(tmp_path / "a.mp4")[:2] == (0, f"{tmp_path}/a.mp4: there is no such file")


def test_a_folder_without_videos_is_reported(tmp_path):
    assert failure(tmp_path)[1].startswith(f"{tmp_path}: the folder contains no videos or images; put some there")
    assert failure(f"{tmp_path}/*.mp4")[1].startswith(
        f"{tmp_path}/*.mp4: the pattern contains no videos or images; check its folder"
    )
    (tmp_path / "a.mp4").touch()
    assert "this is a folder" in failure(tmp_path)[1]


def test_empty_and_text_files_are_reported(tmp_path):
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("Grüße, this is not a video\n" * 300)
    assert "the file is empty" in failure(tmp_path / "empty.mp4")[1]
    assert "this is a text file, not a video" in failure(tmp_path / "text.mp4")[1]


def test_unrecognized_bytes_are_reported(tmp_path):
    (tmp_path / "a.mp4").write_bytes(bytes(range(256)) * 50)
    assert "not a video that FFmpeg can read" in failure(tmp_path / "a.mp4")[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_missing_permission_is_reported(tmp_path):
    path = write(tmp_path / "a.mp4")
    path.chmod(0)
    assert "no permission" in failure(path)[1]


def test_the_cause_of_missing_permissions_is_named(tmp_path):
    (tmp_path / "shut").mkdir()
    for name in ("a.mp4", "shut/b.mp4"):
        write(tmp_path / name, frames=2)
    for name in ("a.mp4", "shut"):
        (tmp_path / name).chmod(0)
    code = (
        "import sys; from streamkit.media.source_errors import cannot_open\n"
        "for path in sys.argv[1:]: error = cannot_open(path, OSError(5, 'x')); print(error.cause, str(error))"
    )
    paths = [str(tmp_path / name) for name in ("a.mp4", "shut", "shut/b.mp4")]
    completed = without_rights("-c", code, *paths)
    (tmp_path / "shut").chmod(0o755)
    words = ("read it", "look into this folder; change its rights, or name another folder", "read it")
    assert completed.stdout.splitlines() == [
        f"permission {path}: no permission to {word}" for path, word in zip(paths, words, strict=True)
    ]


def test_special_files_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.mp4")
    (tmp_path / "link.mp4").symlink_to("/dev/zero")
    for name, what in (("pipe.mp4", "named pipe"), ("link.mp4", "device")):
        with pytest.raises(SourceError, match=f"{name}: this is a {what}, not a video file") as caught:
            check_file(str(tmp_path / name))
        assert caught.value.cause == "no_video"
    check_file(str(tmp_path))
    check_file(str(tmp_path / "gone.mp4"))


def test_a_file_without_video_stream_is_reported(tmp_path):
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    assert failure(path)[1].endswith("has no video stream")


def test_a_missing_index_is_reported(tmp_path):
    whole = write(tmp_path / "a.mp4", frames=50).read_bytes()
    (tmp_path / "b.mp4").write_bytes(whole[: len(whole) // 2])
    assert "index is missing (moov atom not found)" in failure(tmp_path / "b.mp4")[1]


@pytest.mark.parametrize(("name", "counted"), [("a.mp4", True), ("a.mkv", False)])
def test_a_truncated_file_is_reported(tmp_path, name, counted):
    options = {"bf": "0"}
    path = tmp_path / name
    if counted:
        matroska = write(tmp_path / "made.mkv", frames=100, options=options)
        with av.open(str(matroska)) as source, av.open(str(path), "w", options={"movflags": "faststart"}) as output:
            stream = output.add_stream_from_template(source.streams.video[0])
            for packet in source.demux(video=0):
                if packet.size:
                    packet.stream = stream
                    output.mux(packet)
    else:
        write(path, frames=100, options=options)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    count, text, _ = failure(path)
    assert 20 < count < 95
    assert "ends early" in text
    assert "of 4.0 s could be read" in text
    assert (f"{count} of 100 frames" in text) == counted


@pytest.mark.parametrize("device", [Device(), pytest.param(Device("cuda"), marks=pytest.mark.gpu)], ids=str)
def test_flipped_bytes_are_counted(test_data, tmp_path, device):
    data = bytearray((test_data / "videos" / "vtest_480x360.mp4").read_bytes())
    start = data.find(b"mdat") + 100
    for i in range(start, len(data), 9973):
        data[i] ^= 0xFF
    path = tmp_path / "flip.mp4"
    path.write_bytes(data)
    count, text, counters = failure(path, device)
    assert count > 700
    assert "is damaged" in text
    assert counters["decode errors concealed"] > 0


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("gone.mp4", "missing"),
        ("link.mp4", "missing"),
        ("", "no_video"),
        ("empty.mp4", "empty"),
        ("text.mp4", "no_video"),
    ],
)
def test_each_file_error_has_a_cause(tmp_path, name, cause):
    (tmp_path / "empty.mp4").touch()
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "link.mp4").symlink_to("nowhere")
    with pytest.raises(SourceError) as caught:
        VideoReader(str(tmp_path / name), Device(), SurfacePool(Device()), Counters())
    assert caught.value.cause == cause
    if name == "link.mp4":
        assert str(caught.value).endswith("there is no such file: the link points to nowhere, which does not exist")


def test_a_refused_connection_masks_the_password():
    text = failure("http://user:secret@127.0.0.1:9/a.mp4")[1]
    assert text.startswith("http://user:***@127.0.0.1:9/a.mp4: connection refused")
    assert "secret" not in text


def test_a_webcam_that_another_program_uses_is_named_as_such(tmp_path):
    device = tmp_path / "video0"  # V4L2 answers EBUSY when it is opened or its format is set
    device.touch()
    error = cannot_open(f"v4l2://{device}", OSError(errno.EBUSY, "Device or resource busy"))
    assert str(error).endswith("the device is in use by another program")
    assert error.cause == "refused"
