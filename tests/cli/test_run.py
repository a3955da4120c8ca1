"""`run` as a user meets it: exit codes, messages, outputs, and what bad input gets."""

import json
import os
import resource
import signal
from pathlib import Path

import av
import pytest
from support.clips import write as clip
from support.commands import PIPELINE, Here, command, decoded, records, write


def test_a_run_writes_records_video_and_report(root: Path, tmp_path: Path) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    completed = command(root, write(tmp_path, text), "--limit", 30, "--report", tmp_path / "r.json", "--device", "cpu")
    assert completed.returncode == 0, completed.stderr
    assert [r["frame"] for r in records(tmp_path / "out/street.jsonl")] == list(range(30))
    assert any(r["objects"] for r in records(tmp_path / "out/street.jsonl"))
    assert decoded(tmp_path / "out/street.mp4") == 30
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["frames"] == 30
    assert report["exit_code"] == 0
    assert set(report["stages"]) > {"detect.preprocess", "detect.infer", "detect.postprocess", "draw", "video"}
    assert "30 frames in" in completed.stderr


def test_a_file_whose_name_is_not_utf_8_is_read(root: Path, here: Here, tmp_path: Path) -> None:
    for name in ("ok.mp4", os.fsdecode(b"entr\xe9e.mp4")):
        (tmp_path / "videos").mkdir(exist_ok=True)
        clip(tmp_path / "videos" / "clip.mp4", 64, 48, 3).rename(tmp_path / "videos" / name)
    text = f'sources: {{f: videos/}}\nstages: {{jsonl: {{path: "{tmp_path}/out/{{source}}.jsonl"}}}}\n'
    completed = here(write(tmp_path, text), "--report", tmp_path / "r.json", cwd=root)
    assert completed.returncode == 0, completed.stderr
    assert [len(records(tmp_path / f"out/f/{name}.jsonl")) for name in ("entr_e", "ok")] == [3, 3]
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["sources"] == {
        "f/entr_e": {"frames": 3},
        "f/ok": {"frames": 3},
    }


def test_the_listed_outputs_are_the_written_files(root: Path, here: Here, tmp_path: Path) -> None:
    text = f"""
sources: {{a: "test://?frames=3&width=64&height=48"}}
stages:
  jsonl: {{path: "{tmp_path}/a.jsonl"}}
  parquet: {{path: "{tmp_path}/rows/{{source}}/{{date}}", spool: {{path: "{tmp_path}/spool"}}}}
  sqlite: {{path: "{tmp_path}/a.db", spool: {{path: "{tmp_path}/spool-sqlite"}}}}
"""
    completed = here(write(tmp_path, text), cwd=root)
    assert f"outputs: {tmp_path}/a.jsonl, {tmp_path}/rows/a, {tmp_path}/a.db" in completed.stderr


def test_a_file_that_was_not_replaced_is_not_listed_as_output(root: Path, here: Here, tmp_path: Path) -> None:
    (tmp_path / "old.mp4").write_text("of an earlier run")
    text = f"""
sources: {{a: "test://?frames=3&width=64&height=48"}}
stages:
  video: {{path: "{tmp_path}/old.mp4", if_exists: fail}}
"""
    completed = here(write(tmp_path, text), "--report", tmp_path / "r.json", cwd=root)
    assert "it exists, and if_exists is fail" in completed.stderr
    assert json.loads((tmp_path / "r.json").read_text())["outputs"] == []


def remux(source: Path, target: Path, flags: str) -> bytes:
    """Copy the packets into a new mp4; with `faststart` its index comes first, else last."""
    with av.open(str(source)) as old, av.open(str(target), "w", options={"movflags": flags} if flags else {}) as new:
        stream = new.add_stream_from_template(old.streams.video[0])
        for packet in old.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                new.mux(packet)
    return target.read_bytes()


@pytest.fixture
def broken(tmp_path: Path, root: Path) -> dict[str, Path]:
    """Files that are wrong, each in its own way, from the sample video."""
    whole = (root / "samples" / "street.mp4").read_bytes()
    paths = {
        "missing": tmp_path / "missing.mp4",
        "text": tmp_path / "text.mp4",
        "empty": tmp_path / "empty.mp4",
        "index": tmp_path / "index.mp4",
        "cut": tmp_path / "cut.mp4",
        "flipped": tmp_path / "flipped.mp4",
        "audio": tmp_path / "audio.mp4",
    }
    paths["text"].write_text("this is no video\n" * 50)
    paths["empty"].write_bytes(b"")
    flipped = bytearray(whole)
    for at in range(len(whole) // 3, len(whole) * 2 // 3, 997):
        flipped[at] ^= 0xFF
    paths["flipped"].write_bytes(flipped)
    with av.open(str(paths["audio"]), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame(format="fltp", layout="mono", samples=1024)
        frame.sample_rate = 16000
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        container.mux([*stream.encode(frame), *stream.encode(None)])
    for name, flags in (("cut", "faststart"), ("index", "")):
        data = remux(root / "samples/street.mp4", tmp_path / "remuxed.mp4", flags)
        paths[name].write_bytes(data[: len(data) // 2])
    return paths


def test_broken_sources_fail_alone(root: Path, tmp_path: Path, broken: dict[str, Path]) -> None:
    lines = "\n".join(f"  {name}: {path}" for name, path in broken.items())
    text = PIPELINE.format(sources=f"  good: samples/street.mp4\n{lines}", out=tmp_path / "out")
    completed = command(root, write(tmp_path, text), "--limit", 30, "--device", "cpu", "--report", tmp_path / "r.json")
    assert completed.returncode == 1, completed.stderr
    assert "Traceback" not in completed.stderr
    assert len(records(tmp_path / "out/good.jsonl")) == 30
    assert decoded(tmp_path / "out/good.mp4") == 30
    sources = json.loads((tmp_path / "r.json").read_text())["sources"]
    for name in ("missing", "text", "empty", "index", "audio"):
        assert sources[name]["frames"] == 0
        assert f"source {name} failed: " in completed.stderr
        assert "\n" not in sources[name]["error"]
        assert not (tmp_path / f"out/{name}.mp4").exists()
    assert len(records(tmp_path / "out/flipped.jsonl")) == sources["flipped"]["frames"] > 0
    assert len(records(tmp_path / "out/cut.jsonl")) == sources["cut"]["frames"] == 30


def test_a_truncated_file_keeps_its_decoded_frames(
    root: Path, here: Here, tmp_path: Path, broken: dict[str, Path]
) -> None:
    text = PIPELINE.format(sources=f"  cut: {broken['cut']}", out=tmp_path / "out").replace("detect: {", "# {")
    completed = here(write(tmp_path, text), "--device", "cpu", "--report", tmp_path / "r.json", cwd=root)
    assert completed.returncode == 1, completed.stderr
    source = json.loads((tmp_path / "r.json").read_text())["sources"]["cut"]
    assert 60 < source["frames"] < 400
    assert "error" in source
    assert len(records(tmp_path / "out/cut.jsonl")) == source["frames"] == decoded(tmp_path / "out/cut.mp4")


def test_an_unwritable_report_is_reported_before_the_first_frame(root: Path, here: Here, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = f"sources: {{a: 'test://?frames=2'}}\nstages: {{jsonl: {{path: '{tmp_path}/a.jsonl'}}}}\n"
    completed = here(write(tmp_path, text), "--device", "cpu", "--report", tmp_path / "file" / "r.json", cwd=root)
    assert completed.returncode == 1
    assert (
        completed.stderr
        == f"cannot write {tmp_path}/file/r.json: a part of the path is a file where a folder is needed; "
        f"rename {tmp_path}/file, or set another path\n"
    )
    assert not (tmp_path / "a.jsonl").exists()


def test_a_run_that_does_not_start_leaves_no_report(root: Path, tmp_path: Path) -> None:
    text = f"sources: {{a: 'test://?frames=2'}}\nstages: {{jsonl: {{path: '{tmp_path}/a.jsonl'}}}}\n"
    completed = command(root, write(tmp_path, text), "--device", "cuda", "--report", tmp_path / "r.json")
    assert completed.returncode == 2
    assert os.listdir(tmp_path) == ["p.yaml"]


def test_invalid_networks_and_label_lists_are_reported(root: Path, here: Here, tmp_path: Path) -> None:
    card = (root / "models/demo.yaml").read_text()
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out").replace("demo", "mine")
    (tmp_path / "mine.onnx").write_text("not a network")
    (tmp_path / "mine.yaml").write_text(card.replace("demo.onnx", "mine.onnx"))
    completed = here(write(tmp_path, text), "--device", "cpu", cwd=root)
    assert completed.returncode == 2
    assert "is not an ONNX model" in completed.stderr
    (tmp_path / "mine.onnx").write_bytes((root / "models/demo.onnx").read_bytes())
    (tmp_path / "mine.yaml").write_text(card.replace("demo.onnx", "mine.onnx").replace("bike", "bike, bus"))
    completed = here(write(tmp_path, text), "--device", "cpu", cwd=root)
    assert completed.returncode == 2
    assert "Traceback" not in completed.stderr
    assert "4" in completed.stderr
    (tmp_path / "mine.yaml").write_text(card.replace("demo.onnx", "mine.onnx") + f"sha256: {'ab' * 32}\n")
    completed = here(write(tmp_path, text), "--device", "cpu", cwd=root)
    assert completed.returncode == 2
    assert "SHA-256" in completed.stderr
    assert not (tmp_path / "out").exists()


def test_cuda_without_a_gpu_exits_with_2(root: Path, here: Here, tmp_path: Path) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    completed = here(write(tmp_path, text), "--device", "cuda", cwd=root)
    assert completed.returncode == 2
    assert "device cuda cannot be used" in completed.stderr
    assert "doctor" in completed.stderr


def test_an_unwritable_output_is_reported(root: Path, here: Here, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    completed = here(write(tmp_path, text), "--device", "cpu", "--limit", 20, cwd=root)
    assert completed.returncode == 1
    assert str(tmp_path / "out") in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    ("stages", "limit", "fails", "left"),
    [("jsonl", 20_000, "jsonl", []), ("video jsonl", 100_000, "mp4", ["street.jsonl"])],
)
def test_a_full_disk_leaves_no_partial_file(
    root: Path, tmp_path: Path, stages: str, limit: int, fails: str, left: list[str]
) -> None:
    """What cannot be written is not there at all, nor hidden; an output that fits is whole, up to the last frame."""

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    out = tmp_path / "out"
    endings = {"video": "mp4", "jsonl": "jsonl"}
    lines = (f"  {stage}: {{path: '{out}/{{source}}.{endings[stage]}'}}\n" for stage in stages.split())
    path = write(tmp_path, "sources: {street: samples/street.mp4}\nstages:\n" + "".join(lines))
    completed = command(root, path, "--device", "cpu", preexec_fn=small_files)
    assert completed.returncode == 1, completed.stderr
    assert "Traceback" not in completed.stderr
    assert f"cannot write {out}/street.{fails}: " in completed.stderr
    assert sorted(os.listdir(out)) == left
    for name in left:
        frame_records = records(out / name)
        assert [frame_record["frame"] for frame_record in frame_records] == list(range(len(frame_records)))
        assert f"\n{len(frame_records)} frames in " in completed.stderr
        assert 0 < len(frame_records) < 400


def test_a_missing_encoder_exits_with_2(root: Path, here: Here, tmp_path: Path) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    completed = here(write(tmp_path, text), "--device", "cpu", "--set", "stages.video.encoder=nvenc", cwd=root)
    assert completed.returncode == 2
    assert completed.stderr.count("encoder: nvenc needs frames on a GPU") == 1
    assert not list((tmp_path / "out").glob("*"))


RAISING = '''
from streamkit import FrameStage, stage

@stage("raising")
class Raising(FrameStage):
    """Raise on some frames."""

    def process(self, frame):
        if frame.index % 5 == 3:
            raise ValueError("no such luck")
'''


@pytest.mark.parametrize("on_error", ["skip", "stop"])
def test_a_raising_stage_is_reported(root: Path, here: Here, tmp_path: Path, on_error: str) -> None:
    (tmp_path / "raising.py").write_text(RAISING)
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out").replace(
        "  draw: {}", f"  raising: {{run: {{on_error: {on_error}}}}}\n  draw: {{}}"
    )
    path = write(tmp_path, f"plugins: [raising.py]\n{text}")
    completed = here(path, "--device", "cpu", "--limit", 20, "--report", tmp_path / "r.json", cwd=root)
    assert completed.returncode == 1, completed.stderr
    assert "raising failed on street frame 3 (0.12 s): ValueError: no such luck" in completed.stderr
    rows = records(tmp_path / "out/street.jsonl")
    assert [r["frame"] for r in rows][:4] == [0, 1, 2, 3]  # nothing already decoded is lost
    if on_error == "skip":
        assert [r["frame"] for r in rows] == list(range(20))
        assert [r["frame"] for r in rows if "error" in r] == [3, 8, 13, 18]
        assert json.loads((tmp_path / "r.json").read_text())["stages"]["raising"]["failed"] == 4


def test_an_unwritable_profile_is_reported_before_the_first_frame(root: Path, here: Here, tmp_path: Path) -> None:
    path = write(tmp_path, PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out"))
    completed = here(path, "--device", "cpu", "--profile", path / "p.json", cwd=root)
    assert completed.returncode == 1
    assert completed.stderr == (
        f"cannot write {path}/p.json: a part of the path is a file where a folder is needed; rename {path}, or set "
        "another path\n"
    )
    assert not (tmp_path / "out").exists()
