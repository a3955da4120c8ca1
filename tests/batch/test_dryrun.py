import re
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support import corpus
from support.dataset_runs import tree
from support.small_clips import clip

from streamkit.batch import dryrun
from streamkit.batch.dryrun import ProbedFile, dry_run, table
from streamkit.batch.inputs import find
from streamkit.batch.job import BatchSettings, FrameSelection, VideoFile
from streamkit.batch.pipeline import config_for
from streamkit.batch.probe import Probe
from streamkit.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]


def settings(out, look=FrameSelection()):  # noqa: B008  # a frozen value
    return BatchSettings(ROOT / "pipeline.yaml", (), out, ("parquet",), look)


def run_dry(files, out, look=FrameSelection(), **how):  # noqa: B008
    return of(settings(out, look), files, **how)


def of(batch_settings, files, **how):
    shown = []
    code = dry_run(config_for(batch_settings, "cpu"), batch_settings, files, shown.append, **how)
    return code, shown


@pytest.fixture(scope="module")
def video_corpus(tmp_path_factory, test_data):
    return corpus.make(tmp_path_factory.mktemp("corpus"), test_data / "videos", 12, 5, seed=2)


def test_a_dry_run_describes_the_work(video_corpus, tmp_path):
    code, shown = run_dry(find([str(video_corpus.folder)]), tmp_path / "out")
    good = sum(video_corpus.good.values()) / 25
    text = "\n".join(shown)
    assert code == 1
    # two that are broken within, the header alone and a cut one, are taken for good by their headers
    assert re.search(r"to do +9 files   [\d.]+ (s|min) of video, [\d.]+ (kB|MB)", shown[0])
    amount, unit = re.search(r"([\d.]+) (s|min) of video", shown[0]).groups()
    assert float(amount) * (60 if unit == "min" else 1) >= good - 3
    for codec in corpus.FORMS:
        assert re.search(rf"^  {codec} +\d files   [\d.]+ (s|min), 320x192$", text, re.M)
    assert re.search(r"cannot +3 files   (empty 1|no_video 1|truncated 1|, )+$", text, re.M)
    assert "the file is empty" in text
    assert "its index is missing (moov atom not found)" in text
    assert re.search(
        r"^about .*: (\d workers, each|one worker) at [\d.]+ times real time, measured on a few seconds", shown[-1]
    )
    assert re.search(r"of a few files, and [\d.]+ s to start$", shown[-1])
    assert not (tmp_path / "out").exists()


def test_a_dry_run_without_broken_files_reports_none(tmp_path):
    code, shown = run_dry(
        find([str(ROOT / "samples" / "street.mp4")]), tmp_path / "out", FrameSelection(1.0, 9.0, keyframes=True)
    )
    assert code == 0
    assert shown[0].startswith("to do          1 files   8.0 s of video, 459.0 kB")
    assert "cannot         0 files   by their headers; damage after the header is found by the run" in shown


def test_a_dry_run_without_readable_files_reports_so(tmp_path):
    (tmp_path / "a.mp4").touch()
    code, shown = run_dry(find([str(tmp_path)]), tmp_path / "out")
    assert code == 1
    assert shown == [
        "to do          0 files   0.0 s of video, 0 bytes",
        "cannot         1 files   empty 1",
        "  a.mp4: empty: the file is empty",
    ]


def test_files_shorter_than_the_start_are_reported(tmp_path):
    street = str(ROOT / "samples" / "street.mp4")
    short = str(clip(tmp_path / "v" / "short.mp4"))
    code, shown = run_dry(find([short, street]), tmp_path / "out", FrameSelection(start_s=10.0))
    assert code == 0
    assert shown[0].startswith("to do          2 files   6.0 s of video, ")
    assert shown[1] == "  shorter than --start 10 s, so that none of their frames is processed: 1"
    assert shown[-1].startswith("about ")
    code, shown = run_dry(find([short]), tmp_path / "out", FrameSelection(start_s=10.0))
    assert (code, shown[-1]) == (0, "no estimate: no file has frames to process")


def test_the_estimate_includes_the_start_of_the_workers(tmp_path):
    for name in "abc":
        clip(tmp_path / "v" / f"{name}.mp4")
    files = find([str(tmp_path / "v")])
    for workers, words in ((1, "one worker at"), (2, "2 workers, each at")):
        _, shown = run_dry(files, tmp_path / "out", workers=workers)
        estimate = re.fullmatch(rf"about ([\d.]+) s: {words} [\d.]+ times .*, and ([\d.]+) s to start", shown[-1])
        assert float(estimate[1]) >= float(estimate[2]) > 0.1
    _, shown = run_dry(files, tmp_path / "out", cluster=True)
    assert shown[-1].startswith("no estimate: the speed of the cluster is unknown; without --ray")


LOOKING = '''
from pathlib import Path
from streamkit import FrameStage, stage

@stage("looking")
class Looking(FrameStage):
    """Write down what is being written below a folder."""

    folder: str

    def process(self, frame):
        with open(self.folder + ".txt", "a") as file:
            print(*(path.relative_to(self.folder) for path in Path(self.folder).rglob("*.part")), file=file)
'''


def test_samples_are_processed_as_in_a_run_and_removed(tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    home = tmp_path / "home"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    files = find([str(clip(home / "v" / "a.mp4", 60))])
    (home / "looking.py").write_text(LOOKING)
    (home / "p.yaml").write_text(
        "device: cpu\nplugins: [looking.py]\nstages:\n  detect: {model: demo}\n"
        "  heat: {stage: heatmap, path: 'out/{source}-heat.png'}\n"
        f"  looking: {{folder: {temporary}}}\n"
    )
    monkeypatch.chdir(home)
    before = set(tree(home))
    code, shown = of(BatchSettings(Path("p.yaml"), (), Path("out"), ("jsonl", "video"), FrameSelection()), files)
    assert (code, shown[-1][:5]) == (0, "about")
    seen = (tmp_path / "temporary.txt").read_text()
    assert re.search(r"streamkit-\w+/out/video/\.sample1\.mp4", seen)
    assert re.search(r"streamkit-\w+/out/jsonl/\.sample1\.jsonl", seen)
    assert {name for name in tree(home) if "__pycache__" not in name} == before
    assert list(temporary.iterdir()) == []


def test_an_impossible_data_set_is_refused_as_in_a_run(tmp_path):
    (tmp_path / "p.yaml").write_text(
        "stages: {detect: {model: demo}, video: {path: 'a/{source}.mp4', encoder: none}}\n"
    )
    batch_settings = BatchSettings(tmp_path / "p.yaml", (), tmp_path / "out", ("video",), FrameSelection())
    with pytest.raises(ConfigError, match="the format video needs encoded frames"):
        of(batch_settings, find([str(clip(tmp_path / "a.mp4"))]))


def test_a_long_list_is_shortened():
    seen = [
        ProbedFile(VideoFile(str(n), f"{n}.mp4", 0, ""), Probe(problem="broken", kind="damaged")) for n in range(30)
    ]
    lines = list(table(seen, FrameSelection()))
    assert lines[1] == "cannot        30 files   damaged 30"
    assert (len(lines), lines[-1]) == (23, "  and 10 more")


def test_many_sizes_of_a_codec_are_summarized():
    seen = [
        ProbedFile(
            VideoFile(str(n), f"{n}.mp4", 5_000_000, "1"), Probe(3600.0, "h264", 100 + n // 2, 100, 25.0, 90_000)
        )
        for n in range(10)
    ]
    seen.append(ProbedFile(VideoFile("x", "x.h264", 10, "1"), Probe(None, "h264", 100, 100)))
    lines = list(table(seen, FrameSelection()))
    assert lines[0].endswith("10.0 h of video, 50.0 MB; 1 of them have no known duration")
    assert lines[1].endswith("10.0 h, 100x100, 101x100, 102x100 and 2 more sizes")


def test_some_of_many_remote_files_are_probed(monkeypatch, tmp_path):
    monkeypatch.setattr(dryrun, "_REMOTE", 4)
    memory = MemoryFileSystem()
    data = (ROOT / "samples" / "street.mp4").read_bytes()
    for number in range(12):
        memory.pipe_file(f"/gates/{number}.mp4", data)
    code, shown = run_dry(find(["memory://gates/*.mp4"]), tmp_path / "out", FrameSelection(keyframes=True))
    memory.rm("/gates", recursive=True)
    assert code == 0
    assert shown[0] == "the headers of 4 of 12 files were read; the following lines are about these"
    assert shown[1].startswith("to do          4 files   1.1 min of video")
    assert "all files together: about 3.2 min of video, extrapolated from these" in shown


def test_files_of_unknown_size_are_extrapolated_by_number():
    files = [VideoFile(f"s3://v/{n}", f"{n}.mp4", size, "1") for n, size in enumerate((1000, None, 3000, 4000))]
    assert dryrun._scale(files, files[:1]) == 4
    assert dryrun._scale(files[2:], files[2:3]) == pytest.approx(7 / 3)


def test_the_length_of_a_selection_is_clipped_to_the_video():
    assert FrameSelection().length_s(100.0) == 100
    assert FrameSelection(start_s=30.0).length_s(100.0) == 70
    assert FrameSelection(start_s=30.0, end_s=50.0).length_s(100.0) == 20
    assert FrameSelection(start_s=300.0).length_s(100.0) == 0
    assert FrameSelection().length_s(None) == 0


def test_an_empty_selection_is_refused():
    with pytest.raises(ConfigError, match="--end must be after --start, got start 9 s and end 3 s"):
        FrameSelection(9.0, 3.0)
    with pytest.raises(ConfigError, match="--every must be 1 with --keyframes, got 5"):
        FrameSelection(every=5, keyframes=True)


@pytest.mark.parametrize(
    ("lengths_s", "sampled_s"),
    [
        (range(1, 9), [3, 3, 5, 7]),  # from the first, the second and the third quarter, and the first to warm up
        (range(100, 0, -1), [26, 26, 51, 76]),
        ([5.0], [5.0, 5.0]),
        ([1.0, 2.0], [1.0, 1.0, 2.0]),
        ([], []),
    ],
)
def test_the_speed_is_measured_on_files_of_medium_length(lengths_s, sampled_s, tmp_path):
    good = [
        ProbedFile(VideoFile(f"/v/{number}.mp4", f"{number}.mp4", 1, "1"), Probe(duration_s=length_s, fps=25.0))
        for number, length_s in enumerate(lengths_s)
    ]
    estimate = dryrun._Estimate(None, settings(tmp_path), good, None)
    assert [file.probe.duration_s for file in estimate.samples()] == sampled_s
