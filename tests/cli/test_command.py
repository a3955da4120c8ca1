"""The command as a user meets it: exit codes, messages, outputs, and what bad input gets."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import pytest

Here = Callable[..., subprocess.CompletedProcess[str]]

PIPELINE = """
sources:
{sources}
stages:
  detect: {{model: demo, min_score: 0.4}}
  draw: {{}}
  video: {{path: "{out}/{{source}}.mp4"}}
  jsonl: {{path: "{out}/{{source}}.jsonl"}}
"""


def command(root: Path, *args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "error", str(root / "run.py"), *map(str, args)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **kwargs.pop("env", {})}
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=root, env=environment, **kwargs)


def write(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def decoded(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def test_a_run_writes_records_video_and_report(root: Path, tmp_path: Path) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    done = command(root, write(tmp_path, text), "--limit", 30, "--report", tmp_path / "r.json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert [r["frame"] for r in records(tmp_path / "out/street.jsonl")] == list(range(30))
    assert any(r["objects"] for r in records(tmp_path / "out/street.jsonl"))
    assert decoded(tmp_path / "out/street.mp4") == 30
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["frames"] == 30
    assert report["exit_code"] == 0
    assert set(report["stages"]) > {"detect.preprocess", "detect.infer", "detect.postprocess", "draw", "video"}
    assert "30 frames in" in done.stderr


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
    made = {
        "missing": tmp_path / "missing.mp4",
        "text": tmp_path / "text.mp4",
        "empty": tmp_path / "empty.mp4",
        "index": tmp_path / "index.mp4",
        "cut": tmp_path / "cut.mp4",
        "flipped": tmp_path / "flipped.mp4",
        "audio": tmp_path / "audio.mp4",
    }
    made["text"].write_text("this is no video\n" * 50)
    made["empty"].write_bytes(b"")
    flipped = bytearray(whole)
    for at in range(len(whole) // 3, len(whole) * 2 // 3, 997):
        flipped[at] ^= 0xFF
    made["flipped"].write_bytes(flipped)
    with av.open(str(made["audio"]), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame(format="fltp", layout="mono", samples=1024)
        frame.sample_rate = 16000
        for plane in frame.planes:
            plane.update(bytes(plane.buffer_size))
        container.mux([*stream.encode(frame), *stream.encode(None)])
    for name, flags in (("cut", "faststart"), ("index", "")):
        data = remux(root / "samples/street.mp4", tmp_path / "remuxed.mp4", flags)
        made[name].write_bytes(data[: len(data) // 2])
    return made


def test_broken_sources_fail_alone(root: Path, tmp_path: Path, broken: dict[str, Path]) -> None:
    lines = "\n".join(f"  {name}: {path}" for name, path in broken.items())
    text = PIPELINE.format(sources=f"  good: samples/street.mp4\n{lines}", out=tmp_path / "out")
    done = command(root, write(tmp_path, text), "--limit", 30, "--device", "cpu", "--report", tmp_path / "r.json")
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert len(records(tmp_path / "out/good.jsonl")) == 30
    assert decoded(tmp_path / "out/good.mp4") == 30
    sources = json.loads((tmp_path / "r.json").read_text())["sources"]
    for name in ("missing", "text", "empty", "index", "audio"):
        assert sources[name]["frames"] == 0
        assert f"source {name} failed: " in done.stderr
        assert "\n" not in sources[name]["error"]
        assert not (tmp_path / f"out/{name}.mp4").exists()
    assert len(records(tmp_path / "out/flipped.jsonl")) == sources["flipped"]["frames"] > 0
    assert len(records(tmp_path / "out/cut.jsonl")) == sources["cut"]["frames"] == 30


def test_a_file_cut_short_keeps_what_was_decoded(root: Path, tmp_path: Path, broken: dict[str, Path]) -> None:
    text = PIPELINE.format(sources=f"  cut: {broken['cut']}", out=tmp_path / "out").replace("detect: {", "# {")
    done = command(root, write(tmp_path, text), "--device", "cpu", "--report", tmp_path / "r.json")
    assert done.returncode == 1, done.stderr
    source = json.loads((tmp_path / "r.json").read_text())["sources"]["cut"]
    assert 60 < source["frames"] < 400
    assert "error" in source
    assert len(records(tmp_path / "out/cut.jsonl")) == source["frames"] == decoded(tmp_path / "out/cut.mp4")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("detect: {model", "detekt: {model"), "p.yaml:5:3: unknown stage 'detekt'; did you mean 'detect'?"),
        (("min_score", "min_scor"), "detect has no option 'min_scor'; did you mean 'min_score'?"),
        (("model: demo", "model: dmo"), "did you mean 'demo'?"),
        (("min_score: 0.4", "min_score: 4"), "detect.min_score must be 0 to 1"),
        (("draw: {}", "draw: {from: nowhere}"), "there is no stage 'nowhere'"),
    ],
)
def test_a_wrong_yaml_is_exit_2(root: Path, here: Here, tmp_path: Path, change: tuple[str, str], told: str) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out").replace(*change)
    for subcommand in ("run", "check"):
        done = here(subcommand, write(tmp_path, text), "--device", "cpu", cwd=root)
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("chek", "pipeline.yaml"), "No such command 'chek'; did you mean 'check'?"),
        (("samples/street.mp4",), "samples/street.mp4 is no pipeline; name a YAML in which it stands under sources"),
    ],
)
def test_a_wrong_command_says_what_was_meant(root: Path, here: Here, args: tuple[str, ...], told: str) -> None:
    done = here(*args, cwd=root)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.parametrize("subcommand", ["run", "check"])
def test_every_network_that_is_not_there_is_told_at_its_line(
    root: Path, here: Here, tmp_path: Path, subcommand: str
) -> None:
    card = "task: detect\nfamily: yolox\nfile: {0}.onnx\ninput: {{size: [64, 64]}}\nlabels: [a]\nlicense: none\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(card.format(name))
    text = "sources: {a: 'test://'}\nstages:\n  one: {stage: detect, model: one}\n  two: {stage: detect, model: two}\n"
    done = here(subcommand, write(tmp_path, text), "--device", "cpu", cwd=root)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    for line, (number, name) in zip(lines, ((3, "one"), (4, "two")), strict=True):
        assert line.startswith(f"{tmp_path}/p.yaml:{number}:31: {name}: model card {name} ")
        assert f"its file {tmp_path}/{name}.onnx is not there" in line


@pytest.mark.parametrize("place", ["", "sources: {a: 'test://', b: 'no/such/*.mp4'}", "sources: {b: no/such.mp4}"])
def test_a_pattern_without_a_match_fails_alone_as_a_missing_file_does(
    root: Path, here: Here, tmp_path: Path, place: str
) -> None:
    sources = place or f"sources: {{a: 'test://?frames=3', b: {tmp_path}/none}}"
    (tmp_path / "none").mkdir()
    path = write(tmp_path, f"{sources}\nstages: {{jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}\n")
    checked = here("check", path, cwd=root)
    assert checked.returncode == 0
    assert checked.stderr.count("(warning)") == 1
    assert "source b: " in checked.stderr
    done = here(path, "--device", "cpu", "--limit", 3, cwd=root)
    assert done.returncode == 1
    assert "source b failed: " in done.stderr
    assert (tmp_path / "a.jsonl").exists() == ("a: " in sources)


def test_a_report_that_cannot_be_written_is_told_before_the_first_frame(root: Path, here: Here, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    text = f"sources: {{a: 'test://?frames=2'}}\nstages: {{jsonl: {{path: '{tmp_path}/a.jsonl'}}}}\n"
    done = here(write(tmp_path, text), "--device", "cpu", "--report", tmp_path / "file" / "r.json", cwd=root)
    assert done.returncode == 1
    assert (
        done.stderr == f"cannot write {tmp_path}/file/r.json: a part of the path is a file where a folder is needed\n"
    )
    assert not (tmp_path / "a.jsonl").exists()


def test_a_run_that_does_not_begin_leaves_no_report(root: Path, tmp_path: Path) -> None:
    text = f"sources: {{a: 'test://?frames=2'}}\nstages: {{jsonl: {{path: '{tmp_path}/a.jsonl'}}}}\n"
    done = command(root, write(tmp_path, text), "--device", "cuda", "--report", tmp_path / "r.json")
    assert done.returncode == 2
    assert os.listdir(tmp_path) == ["p.yaml"]


def test_not_an_onnx_file_and_a_wrong_label_list(root: Path, here: Here, tmp_path: Path) -> None:
    card = (root / "models/demo.yaml").read_text()
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out").replace("demo", "mine")
    (tmp_path / "mine.onnx").write_text("not a network")
    (tmp_path / "mine.yaml").write_text(card.replace("demo.onnx", "mine.onnx"))
    done = here(write(tmp_path, text), "--device", "cpu", cwd=root)
    assert done.returncode == 2
    assert "is not an ONNX model" in done.stderr
    (tmp_path / "mine.onnx").write_bytes((root / "models/demo.onnx").read_bytes())
    (tmp_path / "mine.yaml").write_text(card.replace("demo.onnx", "mine.onnx").replace("bike", "bike, bus"))
    done = here(write(tmp_path, text), "--device", "cpu", cwd=root)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "4" in done.stderr
    (tmp_path / "mine.yaml").write_text(card.replace("demo.onnx", "mine.onnx") + f"sha256: {'ab' * 32}\n")
    done = here(write(tmp_path, text), "--device", "cpu", cwd=root)
    assert done.returncode == 2
    assert "SHA-256" in done.stderr
    assert not (tmp_path / "out").exists()


def test_cuda_without_a_gpu_is_exit_2(root: Path, tmp_path: Path) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    done = command(root, write(tmp_path, text), "--device", "cuda")
    assert done.returncode == 2
    assert "device cuda cannot be used" in done.stderr
    assert "doctor" in done.stderr


def test_an_output_that_cannot_be_written(root: Path, here: Here, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    done = here(write(tmp_path, text), "--device", "cpu", "--limit", 20, cwd=root)
    assert done.returncode == 1
    assert str(tmp_path / "out") in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_leaves_no_half_file(root: Path, tmp_path: Path) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    done = command(root, write(tmp_path, text), "--device", "cpu", preexec_fn=small_files)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert f"cannot write {tmp_path}/out/street.jsonl" in done.stderr
    assert not (tmp_path / "out/street.jsonl").exists()
    assert not list((tmp_path / "out").glob(".*"))
    video = tmp_path / "out/street.mp4"
    assert not video.exists() or decoded(video) > 0


def test_an_encoder_that_is_not_there_is_exit_2(root: Path, here: Here, tmp_path: Path) -> None:
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out")
    done = here(write(tmp_path, text), "--device", "cpu", "--set", "stages.video.encoder=nvenc", cwd=root)
    assert done.returncode == 2
    assert done.stderr.count("encoder: nvenc needs the pictures on a GPU") == 1
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


SLOW = '''
import time

from streamkit import FrameStage, stage

@stage("slow")
class Slow(FrameStage):
    """Take two seconds for a frame."""

    def process(self, frame):
        time.sleep(2)
'''


@pytest.mark.parametrize("on_error", ["skip", "stop"])
def test_a_stage_that_raises(root: Path, tmp_path: Path, on_error: str) -> None:
    (tmp_path / "raising.py").write_text(RAISING)
    text = PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out").replace(
        "  draw: {}", f"  raising: {{run: {{on_error: {on_error}}}}}\n  draw: {{}}"
    )
    path = write(tmp_path, f"plugins: [raising.py]\n{text}")
    done = command(root, path, "--device", "cpu", "--limit", 20, "--report", tmp_path / "r.json")
    assert done.returncode == 1, done.stderr
    assert "raising failed on street frame 3 (0.12 s): ValueError: no such luck" in done.stderr
    rows = records(tmp_path / "out/street.jsonl")
    assert [r["frame"] for r in rows][:4] == [0, 1, 2, 3]  # nothing already decoded is lost
    if on_error == "skip":
        assert [r["frame"] for r in rows] == list(range(20))
        assert [r["frame"] for r in rows if "error" in r] == [3, 8, 13, 18]
        assert json.loads((tmp_path / "r.json").read_text())["stages"]["raising"]["failed"] == 4


def begun(line: list[str], root: Path, folder: Path) -> subprocess.Popen[str]:
    """A run whose first records are out."""
    running = subprocess.Popen(line, cwd=root, stderr=subprocess.PIPE, text=True)
    deadline, written = time.monotonic() + 60, folder / "out" / ".street.jsonl.part"
    while not (written.exists() and written.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    return running


def test_a_second_signal_stops_at_once_and_leaves_no_part_files(root: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    sources = "  street: {uri: samples/street.mp4, loop: true}"
    text = PIPELINE.format(sources=sources, out=tmp_path / "out").replace("  draw: {}", "  slow: {}\n  draw: {}")
    path = write(tmp_path, f"plugins: [slow.py]\nbatch: 1\n{text}")
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--report", str(tmp_path / "r.json")]
    with begun(line, root, tmp_path) as running:
        assert sorted(part.name for part in tmp_path.rglob(".*.part")) == [
            ".r.json.part", ".street.jsonl.part", ".street.mp4.part",
        ]  # fmt: skip
        running.send_signal(signal.SIGINT)
        while not (told := running.stderr.readline()).startswith("stopping: "):
            assert told, "it ended"
        assert running.poll() is None  # it drains, a frame in two seconds
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=6) == 130  # what it had in hand would take it much longer
    assert not list(tmp_path.rglob(".*.part"))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_closes(root: Path, tmp_path: Path, number: int) -> None:
    sources = "  street: {uri: samples/street.mp4, loop: true, pace: 20}"
    path = write(tmp_path, PIPELINE.format(sources=sources, out=tmp_path / "out"))
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--report", str(tmp_path / "r.json")]
    running = begun(line, root, tmp_path)
    running.send_signal(number)
    _, told = running.communicate(timeout=30)
    assert running.returncode == 130, told
    report = json.loads((tmp_path / "r.json").read_text())
    street = report["sources"]["street"]
    assert street["out"] == report["frames"] > 0
    assert street["frames"] == street["out"] + sum(street["dropped"].values())  # a busy machine falls behind the pace
    assert len(records(tmp_path / "out/street.jsonl")) == report["frames"] == decoded(tmp_path / "out/street.mp4")


def test_a_profile_is_whole_also_after_ctrl_c(root: Path, tmp_path: Path) -> None:
    sources = "  street: {uri: samples/street.mp4, loop: true, pace: 20}"
    path = write(tmp_path, PIPELINE.format(sources=sources, out=tmp_path / "out"))
    profile = tmp_path / "new/folder/p.json"
    line = [sys.executable, str(root / "run.py"), str(path), "--device", "cpu", "--profile", str(profile)]
    running = begun(line, root, tmp_path)
    assert not profile.exists(), "it appears when it is whole"
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=30)
    assert running.returncode == 130, told
    found = json.loads(profile.read_text())
    assert {"decode", "wait for the pace", "detect.infer", "video"} <= {e["name"] for e in found["traceEvents"]}
    assert f"profile: {profile}, " in told
    assert found["otherData"]["limit"] == told.splitlines()[-1]
    assert not list(profile.parent.glob(".*"))


def test_a_profile_that_cannot_be_written_is_known_before_the_first_frame(
    root: Path, here: Here, tmp_path: Path
) -> None:
    path = write(tmp_path, PIPELINE.format(sources="  street: samples/street.mp4", out=tmp_path / "out"))
    done = here(path, "--device", "cpu", "--profile", path / "p.json", cwd=root)
    assert done.returncode == 1
    assert done.stderr == f"cannot write {path}/p.json: a part of the path is a file where a folder is needed\n"
    assert not (tmp_path / "out").exists()


def test_watch_follows_the_file_and_sigterm_drains(root: Path, tmp_path: Path) -> None:
    path, out = tmp_path / "p.yaml", tmp_path / "out"
    camera = "{stage: test_pattern, uri: 'test://?width=64&height=48&frames=0', pace: realtime}"
    tail = f"stages: {{jsonl: {{path: '{out}/{{source}}.jsonl'}}}}\n"
    path.write_text(f"device: cpu\nsources: {{a: {camera}}}\n{tail}")
    done = subprocess.Popen(
        [sys.executable, root / "run.py", path, "--watch", "--report", tmp_path / "r.json"],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    lines: list[str] = []
    try:
        until = time.monotonic() + 90
        while not list(out.glob(".a.jsonl.part")) + list(out.glob("a.jsonl")) and time.monotonic() < until:
            time.sleep(0.05)
        path.write_text(f"device: cpu\nsources: {{a: {camera}, b: {camera}, b: {camera}}}\n{tail}")
        while "the key 'b' is here twice" not in (line := done.stderr.readline()):
            assert line, lines
            lines.append(line)
        path.write_text(f"device: cpu\nsources: {{a: {camera}, b: {camera}}}\n{tail}")
        while "source b added" not in (line := done.stderr.readline()):
            assert line, lines
            lines.append(line)
        while not list(out.glob(".b.jsonl.part")) + list(out.glob("b.jsonl")) and time.monotonic() < until:
            time.sleep(0.05)
        begun = time.monotonic()
        done.send_signal(signal.SIGTERM)
        assert done.wait(60) == 130
        assert time.monotonic() - begun < 30
    finally:
        done.kill()
        done.stderr.close()
    report = json.loads((tmp_path / "r.json").read_text())
    for name in "ab":
        source = report["sources"][name]
        assert source["frames"] == source["out"] + sum(source["dropped"].values()) > 0
        assert len((out / f"{name}.jsonl").read_text().splitlines()) == source["out"]
