"""`streamkit.Pipeline`: sources that come and go, statistics, runs without a loop."""

import signal
import threading
import time
from pathlib import Path

import pytest

import streamkit
from streamkit.core.errors import ConfigError

STREET = "samples/street.mp4"
REFUSED = "http://127.0.0.1:9/a.mp4"
"""An address at which nothing listens."""
WAIT_S = 60.0


def until(condition):
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s, "it takes too long"
        time.sleep(0.01)


def test_sources_are_added_and_removed_during_a_run():
    with streamkit.Pipeline({"a": STREET}, model="demo", device="cpu", limit=100) as pipeline:
        seen = []
        for frame in pipeline:
            seen.append(frame.source)
            if len(seen) == 3:
                assert pipeline.add_source("b", {"uri": STREET, "every": 2}) == ["b"]
            if frame.source == "b" and seen.count("b") == 3:
                pipeline.remove_source("b")
    assert seen.count("a") == 100
    assert 3 <= seen.count("b") < 100
    assert set(pipeline.stats.sources) == {"a"}
    assert pipeline.report["removed"]["sources"] == 1


def test_each_file_of_a_folder_is_a_source(tmp_path):
    for name in ("one.mp4", "two.mp4"):
        (tmp_path / name).symlink_to(f"/proc/self/cwd/{STREET}")
    with streamkit.Pipeline(model="demo", device="cpu", limit=2) as pipeline:
        assert pipeline.add_source("clips", tmp_path) == ["clips/one", "clips/two"]
        assert {frame.source for frame in pipeline} == {"clips/one", "clips/two"}


def test_a_pipeline_without_sources_can_wait_for_some():
    with streamkit.Pipeline(model="demo", device="cpu", limit=2, keep_running=True) as pipeline:
        adding = threading.Timer(0.3, pipeline.add_source, ("late", STREET))
        adding.start()
        indices = []
        for frame in pipeline:
            indices.append(frame.index)
            if len(indices) == 2:
                pipeline.stop()
    assert indices == [0, 1]


def test_a_pipeline_runs_without_a_loop(tmp_path):
    sources = {"street": STREET, "gone": REFUSED}
    stages = {"detect": {"model": "demo"}, "jsonl": {"path": str(tmp_path / "{source}.jsonl")}}
    pipeline = streamkit.Pipeline({"sources": sources, "stages": stages}, device="cpu", limit=30)
    report = pipeline.run()
    assert (report["frames"], report["exit_code"]) == (30, 1)
    assert "(loop)" not in report["stages"]
    assert len((tmp_path / "street.jsonl").read_text().splitlines()) == 30
    assert pipeline.errors["gone"].cause == "refused"
    with pytest.raises(ConfigError, match="has already started"):
        pipeline.run()
    with pytest.raises(ConfigError, match="started without a loop"):
        iter(pipeline)


def test_a_run_whose_sources_all_fail_raises():
    with pytest.raises(streamkit.SourceError, match=r"source source failed: http://127\.0\.0\.1:9/a\.mp4"):
        streamkit.Pipeline(REFUSED, model="demo", device="cpu").run()


def test_a_missing_file_is_refused_before_the_run_and_while_it_runs():
    with pytest.raises(ConfigError, match=r"source source: there is no file nowhere\.mp4"):
        streamkit.Pipeline("nowhere.mp4", model="demo", device="cpu")
    with streamkit.Pipeline(STREET, model="demo", device="cpu", limit=2) as pipeline:
        with pytest.raises(ConfigError, match=r"source more: there is no file nowhere\.mp4"):
            pipeline.add_source("more", "nowhere.mp4")
        assert {frame.source for frame in pipeline} == {"source"}


def test_a_stage_that_cannot_be_opened_ends_the_run_with_its_error(tmp_path):
    (tmp_path / "file").write_text("")
    stages = {"jsonl": {"path": str(tmp_path / "file" / "rows.jsonl")}}
    with pytest.raises(streamkit.StreamkitError, match=r"rows\.jsonl"):
        list(streamkit.Pipeline(STREET, stages=stages, device="cpu"))


def test_a_second_loop_continues_and_a_third_is_refused():
    with streamkit.Pipeline(STREET, model="demo", device="cpu", limit=5) as pipeline:
        assert next(iter(pipeline)).index == 0
        assert [frame.index for frame in pipeline] == [1, 2, 3, 4]
        with pytest.raises(streamkit.PipelineEnded, match="have been read"):
            list(pipeline)


def test_stop_ends_the_loop_after_the_decoded_frames():
    indices = []
    with streamkit.Pipeline(STREET, model="demo", device="cpu") as pipeline:
        for frame in pipeline:
            indices.append(frame.index)
            pipeline.stop()
        with pytest.raises(streamkit.PipelineEnded, match="has ended"):
            pipeline.add_source("more", STREET)
    assert indices == list(range(len(indices)))
    assert 1 < len(indices) < 250
    assert pipeline.report["exit_code"] == 130


def test_stop_does_not_wait_for_an_abandoned_loop():
    with streamkit.Pipeline(STREET, model="demo", device="cpu") as pipeline:
        next(iter(pipeline))
        until(lambda: pipeline.stats.sources["source"].frames > 20)


def test_stats_are_typed_and_print_as_a_table():
    sources = {"street": STREET, "gone": REFUSED}
    with streamkit.Pipeline(sources, model="demo", device="cpu", limit=40) as pipeline:
        assert repr(pipeline) == "Pipeline(street, gone; not started on cpu)"
        assert pipeline.stats.frames == 0
        for _ in pipeline:
            pass
        stats = pipeline.stats
    street = stats.sources["street"]
    failed = stats.sources["gone"]
    assert (street.state, street.frames, street.out, street.error) == ("ended", 40, 40, None)
    assert failed.state == "failed"
    assert failed.error == f"{REFUSED}: connection refused: nothing listens at this host and port"
    assert street.fps == stats.fps > 0
    infer = stats.stages["detect.infer"]
    assert infer.frames == stats.frames == 40
    assert infer.ms_per_frame == pytest.approx(infer.seconds / 40 * 1e3, rel=0.1)
    first, head, *rows = repr(stats).splitlines()
    assert first.startswith("40 frames in ")
    assert head.split() == ["source", "state", "frames", "out", "fps", "error"]
    assert rows[0].split()[:4] == ["street", "ended", "40", "40"]
    assert rows[1].endswith(failed.error)


def test_invalid_arguments_are_refused_before_the_run():
    pipeline = streamkit.Pipeline({"street": STREET}, model="demo", device="cpu")
    with pytest.raises(ConfigError, match="there is a source 'street' already"):
        pipeline.add_source("street", STREET)
    with pytest.raises(ConfigError, match="did you mean 'start'"):
        pipeline.add_source("b", {"uri": STREET, "strt": 3})
    with pytest.raises(ConfigError, match="there is no source 'stret'; did you mean 'street'"):
        pipeline.remove_source("stret")
    with pytest.raises(ConfigError, match="has not started; call start"):
        pipeline.wait()
    pipeline.remove_source(Path(STREET).stem)
    with pytest.raises(ConfigError, match="has no source; add one"):
        pipeline.start()
    pipeline.close()
    with pytest.raises(streamkit.PipelineEnded, match="stopped before it began"):
        list(pipeline)


CAMERA = {"uri": "test://?width=64&height=48&frames=0", "pace": 50}


@pytest.mark.parametrize("method", ["wait", "run"])
def test_ctrl_c_during_a_wait_ends_the_run_and_closes_its_files(tmp_path, method):
    path = tmp_path / "cam.jsonl"
    pipeline = streamkit.Pipeline({"sources": {"cam": CAMERA}, "stages": {"jsonl": {"path": str(path)}}}, device="cpu")
    if method == "wait":
        pipeline.start()

    def interrupt():
        until(lambda: pipeline.stats.frames > 5)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            getattr(pipeline, method)()
    finally:
        signal.signal(signal.SIGINT, before)
    assert "run" not in {thread.name for thread in threading.enumerate()}
    assert len(path.read_text().splitlines()) == pipeline.report["frames"] > 5
    assert pipeline.report["exit_code"] == 130
    with pytest.raises(streamkit.PipelineEnded, match="the pipeline has ended"):
        pipeline.add_source("more", STREET)


def clips(folder, *names):
    """A folder of videos."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.mp4").symlink_to(f"/proc/self/cwd/{STREET}")
    return folder


@pytest.mark.parametrize("started", [False, True])
def test_a_folder_is_added_completely_or_not_at_all(tmp_path, started):
    folder = clips(tmp_path / "clips", "a", "b", "c")
    with streamkit.Pipeline({"clips/b": CAMERA}, model="demo", device="cpu", keep_running=True) as pipeline:
        frames = iter(pipeline) if started else None
        if frames is not None:
            next(frames)
        with pytest.raises(ConfigError, match="there is a source 'clips/b' already"):
            pipeline.add_source("clips", folder)
        frames = frames or iter(pipeline)
        seen = [next(frames).source for _ in range(30)]
        assert set(seen) == {"clips/b"}
        assert set(pipeline.stats.sources) == {"clips/b"}
        pipeline.remove_source("clips/b")
        assert pipeline.add_source("clips", folder) == ["clips/a", "clips/b", "clips/c"]


def test_sinks_that_support_only_a_part_of_a_folder_get_nothing(tmp_path):
    stages = {"jsonl": {"path": str(tmp_path / "out.jsonl")}, "video": {"path": str(tmp_path / "out.mp4")}}
    folder = clips(tmp_path / "clips", "a", "b")
    pipeline = streamkit.Pipeline({"sources": {}, "stages": stages}, device="cpu", limit=3)
    with pytest.raises(ConfigError, match=r"out\.mp4"):  # a video has one source
        pipeline.add_source("clips", folder)
    assert pipeline.add_source("street", STREET) == ["street"]
    assert set(pipeline.run()["sources"]) == {"street"}
