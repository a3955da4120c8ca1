"""Files over several decoders: the same pictures as of one, what is given back, and many files at once."""

import gc
import threading

import pytest
from support.clips import write

from streamkit.config.validate import model_of
from streamkit.core.data import Device
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import Collecting, Context, FrameStage, default_registry, stage
from streamkit.media.surfaces import shared_pool
from streamkit.stages.sources.source import VideoSource


def frames(uri, **options):
    source = VideoSource(uri=str(uri), **options)
    source.context = Context(id="cam")
    return source.frames()


@pytest.mark.parametrize("decoders", [1, 3, "auto"])
def test_a_file_is_decoded_by_several_decoders(run_pipeline, tmp_path, decoders):
    path = write(tmp_path / "a.mp4", frames=150, options={"g": "20", "bf": "2"})
    text = f"""
        sources: {{a: {{uri: "{path}", decoders: {decoders}, every: 3, loop: 2}}, b: {{uri: "{path}", start: 2s}}}}
        stages: {{collect: {{}}}}
    """
    outcome = run_pipeline(text)
    assert (outcome.code, outcome.logged) == (0, [])
    assert [frame_record["frame"] for frame_record in outcome.records["a"]] == list(range(0, 300, 3))
    assert [frame_record["frame"] for frame_record in outcome.records["b"]] == list(range(50, 150))
    limited = run_pipeline(text, limit=7)
    assert (limited.code, len(limited.records["a"])) == (0, 7)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead/")]


def test_an_aborted_run_leaves_no_decoder(run_pipeline, tmp_path):
    path = write(tmp_path / "a.mp4", 74, 50, frames=400, options={"g": "20", "bf": "2"})

    with Collecting(default_registry()):

        @stage("broken")
        class Broken(FrameStage):
            """Ends the run."""

            def process(self, frame):
                raise ValueError("no")

    with pytest.raises(StreamkitError, match="broken failed"):
        run_pipeline(
            f"""
            sources: {{a: {{uri: "{path}", decoders: 3}}}}
            stages: {{broken: {{run: {{on_error: stop}}}}, collect: {{}}}}
            """,
            extra=[Broken],
        )
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead/")]
    gc.collect()
    assert "74x50" not in shared_pool(Device()).held


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"uri": "rtsp://host/a"}, "decoders must be 1 or auto: only a file can be split, got rtsp://host/a"),
        ({"uri": "https://u:secret@host/a.mp4"}, r"only a file can be split, got https://u:\*\*\*@host/a.mp4"),
        ({"uri": "a.mp4", "pace": 25.0}, "decoders must be 1 or auto for a source with a pace, got 7"),
    ],
)
def test_videos_that_cannot_be_split_are_refused(options, text):
    with pytest.raises(ValueError, match=text):
        VideoSource(**options, decoders=7)
    assert VideoSource(**options, decoders="auto").decoders == "auto"


def test_the_option_decoders_is_read():
    read = model_of(VideoSource).validate_python
    assert read({"uri": "a", "decoders": "auto"})["decoders"] == "auto"
    assert read({"uri": "a", "decoders": 7})["decoders"] == 7
    for wrong in (0, -1, "all", 1.5):
        with pytest.raises(ValueError, match="validation error"):
            read({"uri": "a", "decoders": wrong})


@pytest.mark.gpu
@pytest.mark.parametrize("decoders", [1, 2])
def test_many_short_files_share_decoders(run_pipeline, tmp_path, decoders):
    for number in range(200):
        write(tmp_path / f"{number:03}.mp4", 320, 192, 40, options={"g": "20", "bf": "2"}, first=number)
    outcome = run_pipeline(
        f"""
        sources: {{short: {{uri: "{tmp_path}/*.mp4", decoders: {decoders}}}}}
        stages: {{collect: {{}}}}
        """,
        device="cuda",
    )
    assert outcome.code == 0, outcome.report["sources"]
    assert len(outcome.records) == 200
    assert all(
        [frame_record["frame"] for frame_record in records] == list(range(40)) for records in outcome.records.values()
    )
    counts = outcome.report["counts"]
    new_decoders = counts.get("decoders made", 0)  # none where an earlier run in this process left them
    assert new_decoders <= 32 * decoders  # as many files are read at once
    assert new_decoders + counts["decoders reused"] >= 200


@pytest.mark.gpu
def test_many_sources_decode_on_the_device(test_data):
    import numpy as np

    path = test_data / "videos" / "vtest_480x360.mp4"
    source = VideoSource(uri=str(path), loop=2, end=4.0, start=1.0)
    source.context = Context(id="cam", device=Device("cuda"))
    host = list(frames(path, loop=2, end=4.0, start=1.0))
    for host_frame, device_frame in zip(host, source.frames(), strict=True):
        assert (device_frame.index, device_frame.pts_s) == (host_frame.index, host_frame.pts_s)
        device_frame.surface.ready.synchronize()
        np.testing.assert_array_equal(device_frame.surface.data.get(), host_frame.surface.data)
