"""`eval` as a user meets it: the report, comparisons, the gate, the picture, and bad truth."""

import json
from pathlib import Path

import pytest
from support.commands import Here, write

PIPELINE = """
device: cpu
sources: {{street: {root}/samples/street.mp4}}
stages:
  detect: {{model: demo}}
  track: {{}}
  jsonl: {{path: "{out}/{{source}}.jsonl"}}
"""


@pytest.fixture
def pipeline(root: Path, tmp_path: Path) -> Path:
    return write(tmp_path, PIPELINE.format(root=root, out=tmp_path / "out"))


@pytest.fixture
def truth(root: Path) -> Path:
    return root / "samples" / "street.truth.jsonl"


def test_the_report_is_text_json_and_an_image(here: Here, pipeline: Path, truth: Path, tmp_path: Path) -> None:
    import cv2

    files = ["--json", tmp_path / "r.json", "--worst", tmp_path / "w.png"]
    completed = here(
        "eval", pipeline, "--truth", truth, "--limit", 30, *files, "--min", "ap=.3,recall.car=.5", cwd=tmp_path
    )
    assert completed.returncode == 0, completed.stderr
    for text in ("AP50", "HOTA", "IDF1", "why objects are missed", "counts are not measured: the pipeline has no line"):
        assert text in completed.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["frames"] == 30
    assert report["speed"]["latency"].keys() == {"source", "frames", "dropped", "p50_ms", "p95_ms", "p99_ms"}
    assert report["speed"]["latency"]["frames"] + report["speed"]["latency"]["dropped"] == 30
    assert "frames of street at the speed of a camera" in completed.stdout
    assert report["misses"]["objects"][0].keys() == {"source", "frame", "label", "box", "id", "cause", "score"}
    picture = cv2.imread(str(tmp_path / "w.png"))
    assert picture.shape == (36 + 2 * (36 + 360), 3 * 640, 3)
    colors = {tuple(color) for color in picture[40:].reshape(-1, 3)[:, ::-1].tolist()}
    for red, green, blue in ((46, 147, 255), (46, 194, 126), (229, 56, 59)):  # truth, hit, missed
        assert any(abs(r - red) + abs(g - green) + abs(b - blue) < 12 for r, g, b in colors)
    assert not (tmp_path / "out").exists()  # sinks do not write


def test_the_same_option_twice_compares_both(here: Here, pipeline: Path, truth: Path, tmp_path: Path) -> None:
    sets = ["--set", "stages.detect.min_score=.3", "--set", "stages.detect.min_score=.7"]
    words = ["--limit", 12, "--json", tmp_path / "r.json", "--min", "recall=0.9"]
    completed = here("eval", pipeline, "--truth", truth, *sets, *words, cwd=tmp_path)
    assert completed.returncode == 1
    assert "A: " in completed.stdout
    assert "B - A" in completed.stdout
    for text in ("precision car", "latency p95 ms"):
        assert text in completed.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["a"]["detection"]["recall"] > report["b"]["detection"]["recall"]
    assert report["a"]["detection"]["ap"] == report["b"]["detection"]["ap"]  # of the network, whatever the threshold
    assert "failed: B: recall is 0." in completed.stderr
    assert "failed: A: " not in completed.stderr


def test_a_metric_that_is_not_measured_fails_the_gate(here: Here, pipeline: Path, truth: Path, tmp_path: Path) -> None:
    completed = here("eval", pipeline, "--truth", truth, "--limit", 5, "--min", "counts=.9", cwd=tmp_path)
    assert completed.returncode == 1
    assert "failed: counts is not measured (the pipeline has no line_counter" in completed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--min", "mapp=.5"], "there is no metric 'mapp'; did you mean 'ap'? Metrics: ap, ap50"),
        (["--min", "ap.truck=.5"], "no class 'truck' is evaluated; known: car, person, bike"),
        (["--min", "ap"], "write NAME=NUMBER, such as ap=0.4"),
        (["--min", "fps.car=3"], "there is no metric 'fps.car'"),
        (["--map", "pedestrian"], "write THEIRS=OURS"),
        (["--worst", "w.jpg"], "give it the suffix .png"),
        (["--set", "device=cpu", "--set", "device=cpu", "--set", "device=cpu"], "is given 3 times"),
        (["--truth", "none.json"], "there is no file none.json"),
    ],
)
def test_an_invalid_option_gives_a_single_message(
    here: Here, pipeline: Path, truth: Path, tmp_path: Path, words, message
) -> None:
    completed = here("eval", pipeline, "--truth", truth, *words, cwd=tmp_path)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


def test_a_truth_of_another_size_or_length_gives_a_single_message(
    here: Here, root: Path, pipeline: Path, tmp_path: Path
) -> None:
    boxes = {"objects": [{"id": 1, "label": "car", "box": [0, 0, 50, 50]}]}
    lines = [{"frame": 0, "width": 1280, "height": 720, **boxes}]
    (tmp_path / "size.jsonl").write_text(json.dumps(lines[0]))
    completed = here("eval", pipeline, "--truth", "size.jsonl", "--limit", 3, cwd=tmp_path)
    assert (completed.returncode, "is the truth of a video of 1280x720 (frame 0)" in completed.stderr) == (2, True)
    street = json.loads("[" + ",".join((root / "samples/street.truth.jsonl").read_text().splitlines()[:20]) + "]")
    (tmp_path / "from1.jsonl").write_text(
        "\n".join(json.dumps(truth_line | {"frame": truth_line["frame"] + 1}) for truth_line in street)
    )
    completed = here("eval", pipeline, "--truth", "from1.jsonl", "--limit", 30, cwd=tmp_path)
    assert completed.returncode == 2
    assert "from1.jsonl fits the source street better 1 frame earlier" in completed.stderr
    (tmp_path / "long.jsonl").write_text(json.dumps({"frame": 7000, **boxes}))
    completed = here("eval", pipeline, "--truth", "long.jsonl", "--set", "sources.street.every=40", cwd=tmp_path)
    assert completed.returncode == 2
    assert "boxes up to frame 7000" in completed.stderr


def test_two_pipelines_can_be_compared_without_repeated_options(
    here: Here, pipeline: Path, truth: Path, tmp_path: Path
) -> None:
    completed = here(
        "eval", pipeline, pipeline, "--truth", truth, "--set", "device=cpu", "--set", "device=cpu", cwd=tmp_path
    )
    assert completed.returncode == 2
    assert "compare one or the other" in completed.stderr


def test_the_commands_of_the_page_run(here: Here, root: Path, tmp_path: Path) -> None:
    page = (root / "docs" / "evaluate.md").read_text()
    (tmp_path / "samples").symlink_to(root / "samples")
    (tmp_path / "evaluate.yaml").write_text(page.split("```yaml\n")[1].split("```")[0])
    lines = [line for line in page.splitlines() if line.startswith("streamkit eval ")]
    assert len(lines) == 3
    for line in lines:
        completed = here(*line.split()[1:], "--limit", 4, "--device", "cpu", cwd=tmp_path)
        assert completed.returncode == 0, completed.stderr
        assert "AP50" in completed.stdout
    assert (tmp_path / "worst.png").is_file()


def test_the_page_lists_every_metric_and_every_cause(root: Path) -> None:
    from streamkit.evaluate.causes import CAUSES
    from streamkit.evaluate.report import METRICS

    page = (root / "docs" / "evaluate.md").read_text()
    assert [name for name in (*METRICS, *CAUSES) if f"`{name}`" not in page] == []


def test_the_earlier_spelling_of_only_labeled_is_accepted(here: Here, tmp_path: Path) -> None:
    assert here("eval", "--only-labelled", "--help", cwd=tmp_path).returncode == 0
    assert here("eval", "--only-labeld", "--help", cwd=tmp_path).returncode == 2
