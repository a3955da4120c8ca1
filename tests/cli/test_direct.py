"""The commands without a YAML: what they print runs as it is and gives the same rows; mistakes write nothing."""

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

import av
import numpy as np
import pytest
import yaml
from support.clips import write
from support.commands import Here, records
from support.default_network import shipped_as_default

from streamkit.cli.pipeline_text import pipeline_text, sources_of


@pytest.fixture
def folder(root: Path, tmp_path: Path) -> Path:
    """A folder with a video of a street, and the shipped network as the one that `auto` names."""
    shipped_as_default(tmp_path)
    (tmp_path / "street.mp4").symlink_to(root / "samples" / "street.mp4")
    return tmp_path


COMMANDS = [
    ("detect", "--labels", "person,car"),
    ("detect", "--model", "models/yolox-nano.yaml"),
    ("track",),
    ("count", "--line", "320,60,320,360", "--line", "0,240,640.5,240"),
    ("blur", "--labels", "person"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_printed_yaml_gives_the_same_rows(here: Here, folder: Path, words: tuple[str, ...]) -> None:
    command, *options = words
    limits = ("--device", "cpu", "--limit", 6)
    completed = here(command, "street.mp4", *options, *limits, cwd=folder)
    assert completed.returncode == 0, completed.stderr
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["street.jsonl", "street.mp4"]
    rows = records(folder / "out" / "street.jsonl")
    assert any(row["objects"] for row in rows)
    (folder / "pipeline.yaml").write_text(completed.stdout)
    again = here("run", "pipeline.yaml", *limits, cwd=folder)
    assert again.returncode == 0, again.stderr
    assert records(folder / "out" / "street.jsonl") == rows


def test_the_last_line_says_what_was_found(here: Here, folder: Path) -> None:
    limits = ("--device", "cpu", "--limit", 60, "--jsonl", "rows.jsonl", "--report", "report.json")
    completed = here("count", "street.mp4", "--line", "320,60,320,360", *limits, cwd=folder)
    rows = records(folder / "rows.jsonl")
    labels = Counter(detection["label"] for row in rows for detection in row["objects"])
    events = Counter(event["kind"] for row in rows for event in row["events"])
    report = json.loads((folder / "report.json").read_text())
    assert report["labels"]["detect"].keys() == {"car", "person", "bike"}
    assert report["events_by_stage"] == {"line": dict(events)}
    assert f"{report['labels']['detect']['person']:,} persons" in completed.stderr.splitlines()[-1]
    assert completed.stderr.splitlines()[-1].endswith(f"; {events['crossed']} crossed line")
    assert labels["car"] <= report["labels"]["detect"]["car"]


def test_a_network_of_another_world_has_a_hint(here: Here, folder: Path, test_data: Path) -> None:
    limits = ("--device", "cpu", "--limit", 10, "--jsonl", "rows.jsonl")
    hint = "most objects of detect have a score just above min_score"
    drawn = here("detect", "street.mp4", "--model", "demo", *limits, cwd=folder)
    assert hint not in drawn.stderr
    real = here("detect", test_data / "videos" / "vtest_480x360.mp4", "--model", "demo", *limits, cwd=folder)
    assert hint in real.stderr


def test_the_yaml_names_the_options(here: Here, folder: Path) -> None:
    line = ("count", "street.mp4", "--line", "1,2,3,4.5", "--labels", "person, car", "--out", "a.mp4", "--dry-run")
    completed = here(*line, "--jsonl", "-", "--min-score", 0.5, cwd=folder)
    assert completed.returncode == 0
    assert completed.stdout.startswith("# streamkit count: save this as pipeline.yaml")
    assert yaml.safe_load(completed.stdout) == {
        "sources": {"street": "street.mp4"},
        "stages": {
            "detect": {"model": "auto", "min_score": 0.5, "labels": ["person", "car"]},
            "track": {},
            "line": {"stage": "line_counter", "line": [[1, 2], [3, 4.5]]},
            "draw": {"color": "track"},
            "video": {"path": "a.mp4"},
            "jsonl": {"path": "-"},
        },
    }
    assert not (folder / "a.mp4").exists()


def test_a_network_with_masks_gets_its_stage(here: Here, folder: Path, test_data: Path) -> None:
    network = test_data / "models" / "yolov8n-seg_320_deq_dyn.onnx"
    completed = here("track", "street.mp4", "--model", network, "--limit", 2, "--device", "cpu", cwd=folder)
    assert completed.returncode == 0, completed.stderr
    assert list(yaml.safe_load(completed.stdout)["stages"]) == ["segment", "track", "draw", "video", "jsonl"]
    assert "mask" in records(folder / "out" / "street.jsonl")[-1]["objects"][0]


def test_records_on_standard_output_are_not_mixed_with_the_yaml(here: Here, folder: Path) -> None:
    completed = here("detect", "street.mp4", "--jsonl", "-", "--limit", 2, "--device", "cpu", cwd=folder)
    assert completed.returncode == 0, completed.stderr
    assert [row[:10] for row in completed.stdout.splitlines()] == ['{"schema":'] * 2
    assert "sources:\n  street: street.mp4\n" in completed.stderr


def test_blurred_people_have_no_boxes(here: Here, folder: Path) -> None:
    limits = ("--device", "cpu", "--limit", 2, "--out")
    assert here("blur", "street.mp4", *limits, "blurred.mp4", cwd=folder).returncode == 0
    assert here("detect", "street.mp4", *limits, "boxes.mp4", cwd=folder).returncode == 0
    original, blurred, boxes = (picture(folder / name) for name in ("street.mp4", "blurred.mp4", "boxes.mp4"))
    assert 0 < changed(original, blurred) < changed(original, boxes)


def picture(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return next(container.decode(video=0)).to_ndarray(format="rgb24").astype(int)


def changed(before: np.ndarray, after: np.ndarray) -> float:
    """The share of the pixels that clearly differ in color."""
    return float((np.abs(before - after).max(axis=2) > 60).mean())


def test_a_camera_is_read_by_its_address(here: Here, folder: Path, rtsp) -> None:
    server = rtsp({"street": folder / "street.mp4"})
    address = server.url("street")
    completed = here("detect", address, "--limit", 3, "--device", "cpu", "--jsonl", "rows.jsonl", cwd=folder)
    assert completed.returncode == 0, completed.stderr
    assert yaml.safe_load(completed.stdout)["sources"] == {"127.0.0.1": address}
    assert len(records(folder / "rows.jsonl")) == 3


def test_a_folder_becomes_a_video_for_each_file(here: Here, folder: Path) -> None:
    (folder / "clips").mkdir()
    for name in ("a", "b"):
        write(folder / "clips" / f"{name}.mp4", frames=2)
    completed = here("detect", "clips", "--out", "results/", "--device", "cpu", cwd=folder)
    assert completed.returncode == 0, completed.stderr
    videos = sorted(path.relative_to(folder / "results").as_posix() for path in (folder / "results").rglob("*.mp4"))
    assert videos == ["clips/a.mp4", "clips/b.mp4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("detect", "none.mp4"), "there is no file none.mp4\n"),
        (
            ("detect", "empty"),
            "empty: the folder contains no videos or images; put some there, or name another folder\n",
        ),
        (("detect", "97"), "/dev/video97: there is no such device; this machine has no /dev/video*\n"),
        (("detect", "notes.txt"), "source notes: notes.txt: this is a text file, not a video\n"),
        (("detect", "street.mp4", "--labels", "persn"), "has no class 'persn'; did you mean 'person'?\n"),
        (("detect", "street.mp4", "--model", "best.onnx"), "there is no file best.onnx"),
        (("detect", "street.mp4", "--out", "street.mp4"), "street.mp4 is the source street itself; name another file"),
        (("detect", "street.mp4", "street.mp4", "--out", "a.mp4"), 'into the one file a.mp4; write "{source}" into'),
        (
            ("detect", "street.mp4", "--out", "/dev/full"),
            "--out /dev/full: this is a device, not a file; name a file that",
        ),
        (("detect", "street.mp4", "--out", "a.avi"), "--out a.avi: name a file that ends in .mp4 or .mkv, or a folder"),
        (("count", "street.mp4", "--line", "0,900,640,900"), "line.line is outside of the frame, 640x360 of street"),
        (("count", "street.mp4", "--line", "0,9"), "--line 0,9: write x and y of both ends in pixels, such as --line"),
        (("count", "street.mp4", "--line", "a,b,c,d"), "--line a,b,c,d: write x and y of both ends in pixels"),
        (
            ("detect", "street.mp4", "--show", "--report", "r.json"),
            "--report describes a run that ends, and --show runs",
        ),
        (("count", "street.mp4"), "Missing option '--line'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_mistake_is_a_message_and_writes_nothing(
    here: Here, folder: Path, words: tuple[str, ...], message: str
) -> None:
    (folder / "empty").mkdir()
    (folder / "notes.txt").write_text("no video")
    before = sorted(folder.rglob("*"))
    completed = here(*words, cwd=folder)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert completed.stdout == ""
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "/proc/x.mp4"), "/proc/x.mp4: its folder takes no new files; set a path in another folder\n"),
        (("--out", "notes.txt/b.mp4"), "folder is needed; rename notes.txt, or set another path\n"),
        (("--jsonl", "notes.txt/sub/b.jsonl"), "folder is needed; rename notes.txt, or set another path\n"),
        (("--jsonl", "/dev/full"), "/dev/full: the disk is full; free some space, or set a path on another disk\n"),
    ],
)
def test_an_output_that_cannot_be_written_ends_the_run(
    here: Here, folder: Path, words: tuple[str, ...], message: str
) -> None:
    (folder / "notes.txt").write_text("a file")
    before = sorted(folder.rglob("*"))
    completed = here("detect", "street.mp4", *words, "--device", "cpu", "--limit", 2, cwd=folder)
    assert completed.returncode == 1
    assert message in completed.stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("addresses", "sources"),
    [
        (["a b/my clip.mp4"], {"my_clip": "a b/my clip.mp4"}),
        (["a/x.mp4", "b/x.mp4"], {"x": "a/x.mp4", "x-2": "b/x.mp4"}),
        (["clips/*.mp4"], {"clips": "clips/*.mp4"}),
        (["*.mp4"], {"files": "*.mp4"}),
        (["0", "12"], {"webcam0": "/dev/video0", "webcam12": "/dev/video12"}),
        (["rtsp://ann:pass@10.0.0.7:554/live"], {"10.0.0.7": "rtsp://ann:pass@10.0.0.7:554/live"}),
        (["rtsp://[fd00::7]/live"], {"fd00": "rtsp://[fd00::7]/live"}),
        (["test://"], {"test": "test://"}),
        (["/dev/video1"], {"video1": "/dev/video1"}),
        (["-.mp4"], {"source": "-.mp4"}),
    ],
)
def test_sources_are_named_after_their_addresses(addresses: list[str], sources: dict[str, str]) -> None:
    assert sources_of(addresses) == sources


def test_any_path_survives_the_yaml() -> None:
    address = 'it\'s: {a} #1, "b" – ü.mp4'
    text = pipeline_text("about", [address], {"jsonl": {"path": address}})
    assert yaml.safe_load(text)["stages"]["jsonl"]["path"] == address
    assert list(yaml.safe_load(text)["sources"].values()) == [address]


@pytest.fixture
def shown(root: Path, folder: Path):
    """`track --show` on a video, and the address of its page."""
    line = [sys.executable, str(root / "run.py"), "detect", "street.mp4", "--show", "--device", "cpu"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        texts = []
        while not texts or "http://" not in texts[-1]:
            texts.append(process.stderr.readline())
            assert process.poll() is None, texts
        yield process, re.search(r"http://127\.0\.0\.1:\d+/", texts[-1])[0]
        process.kill()


def test_show_serves_a_page_until_ctrl_c(shown, folder: Path) -> None:
    process, address = shown
    with urllib.request.urlopen(address, timeout=10) as page:
        assert b"<title>" in page.read()
    with urllib.request.urlopen(f"{address}api/v1/sources", timeout=10) as answer:
        assert [source["id"] for source in json.load(answer)] == ["street"]
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert not (folder / "out").exists()


def test_a_port_in_use_is_reported(here: Here, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        completed = here("detect", "street.mp4", "--show", "--port", port, "--device", "cpu", cwd=folder)
    assert completed.returncode == 1
    assert f"cannot listen on 127.0.0.1 port {port}: Address already in use; give another --port" in completed.stderr
