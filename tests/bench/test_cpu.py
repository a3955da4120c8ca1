"""The bench's pieces on few frames; nothing here is timed."""

import json
import sys

import pytest

from streamkit.bench import cpu, graph_cost
from streamkit.bench.cpu import agreement, objects_by_frame
from streamkit.bench.inputs import data_folder
from streamkit.core.errors import ConfigError


def thing(box=(10, 10, 50, 50), score=0.8, class_id=0):
    return {"box": list(box), "score": score, "class_id": class_id}


@pytest.mark.parametrize(
    ("other", "matching_share"),
    [
        (thing(), 1),
        (thing(box=(11, 10, 50, 50)), 1),
        (thing(box=(15, 10, 50, 50)), 0),
        (thing(score=0.76), 1),
        (thing(score=0.74), 0),
        (thing(class_id=1), 0),
    ],
)
def test_objects_agree_by_class_box_and_score(other, matching_share):
    assert agreement([[thing()]], [[other]]).first_share == matching_share


def test_agreement_counts_both_sides_with_scores_from_0_3():
    first = [[thing(), thing(box=(60, 60, 90, 90))], [thing(score=0.2)], []]
    second = [[thing()], [], [thing(score=0.29)]]
    same = agreement(first, second)
    assert (same.first_share, same.second_share, same.objects) == (0.5, 1.0, (2, 1))


def test_an_object_just_below_the_score_may_match():
    assert agreement([[thing(score=0.31)]], [[thing(score=0.28)]]).first_share == 1


def test_agreement_refuses_sides_of_different_length():
    with pytest.raises(ValueError, match="the same frames, got 1 and 2"):
        agreement([[]], [[], []])


@pytest.mark.parametrize(
    ("figure", "holds", "text"),
    [
        (cpu.Figure("speed", 1.3, "times", least=1.25), True, "speed: 1.3 times (at least 1.25)"),
        (cpu.Figure("speed", 1.2, "times", least=1.25), False, "speed: 1.2 times (at least 1.25)  <-- MISSED"),
        (cpu.Figure("cost", 40.5, "µs", most=40), False, "cost: 40.5 µs (at most 40)  <-- MISSED"),
        (cpu.Figure("cost", 99, "µs"), True, "cost: 99 µs"),
    ],
)
def test_a_figure_shows_whether_it_meets_its_limit(figure, holds, text):
    assert (figure.holds, str(figure)) == (holds, text)


def test_empty_stages_run_to_the_end():
    costs = graph_cost.graph_cost(3_000)
    assert costs["frames"] == 3_000
    assert 0 < costs["cpu_us_per_frame"] / costs["calls_us"] < 100
    assert 0.1 < costs["calls_us"] < 1_000  # of 100 calls
    assert costs["us_per_frame"] > 0
    assert sorted(costs["memory_mb"]) == [1_000, 2_000, 3_000]
    assert all(value > 1 for value in costs["memory_mb"].values())


def test_memory_growth_compares_the_end_with_the_first_tenth():
    seen = {str(frame): 100.0 + (frame == 20_000) * 6 for frame in range(1_000, 21_000, 1_000)}
    figure = cpu._growth("probe", {"memory_mb": seen})
    assert figure.name == "probe, memory at frame 20,000 over that at 2,000"
    assert (figure.value, figure.holds) == (1.06, False)


def test_missing_data_is_reported(tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        data_folder(tmp_path)


def test_the_shipped_files_are_measured_by_default(tmp_path, monkeypatch):
    monkeypatch.delenv("STREAMKIT_TEST_DATA", raising=False)
    assert data_folder(None) is None
    monkeypatch.setenv("STREAMKIT_TEST_DATA", str(tmp_path))
    with pytest.raises(ConfigError, match="--data"):
        data_folder(None)
    bench = cpu.CpuBenchmark(None, tmp_path, print)
    assert all(bench.card(name).is_file() for name in ("demo", "color"))
    assert bench.video("demo").is_file()


def test_the_start_is_measured_with_compiled_modules(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    cpu._measured([sys.executable, "-c", "import streamkit.core.version"], str(tmp_path))
    assert list(tmp_path.rglob("version.*.pyc"))


def test_a_failed_command_is_reported_with_its_output():
    with pytest.raises(RuntimeError, match=r"ended with 1:\n(.|\n)*ZeroDivisionError"):
        cpu._measured([cpu.sys.executable, "-c", "1 / 0"])


def test_the_end_of_a_failed_commands_output_is_shown():
    with pytest.raises(RuntimeError) as error:
        cpu._measured([cpu.sys.executable, "-c", "import sys; sys.exit('a' * 9000 + 'the end')"])
    text = str(error.value).partition(" ended with 1:\n")[2]
    assert text.rstrip().endswith("aaathe end")
    assert len(text) == 2000


@pytest.mark.parametrize("shipped", [True, False], ids=["shipped", "data folder"])
def test_memory_is_measured_with_real_frames(shipped, request, tmp_path):
    data = None if shipped else request.getfixturevalue("test_data")
    bench = cpu.CpuBenchmark(data, tmp_path, print)
    name, stage = ("color", "classify") if shipped else ("yunet-64", "detect")
    out = tmp_path / "out.jsonl"
    costs = graph_cost.memory(bench.video(name), bench.card(name), 1_000, out, stage)
    assert sorted(costs["memory_mb"]) == [1_000]
    assert [json.loads(line)["frame"] for line in out.read_text().splitlines()] == list(range(1_000))


LONG = [pytest.param(name, marks=pytest.mark.long) if name == "yolov8n" else name for name in cpu.THRESHOLDS]


@pytest.mark.parametrize("name", LONG)
def test_plain_loop_and_pipeline_give_the_same_objects(name, request, tmp_path):
    data = None if name == cpu.SHIPPED else request.getfixturevalue("test_data")
    bench = cpu.CpuBenchmark(data, tmp_path, print, frames=20)
    sides = [bench.streamkit_side(name), bench.plain_side(name)]
    for side in sides:
        assert side["frames"] == 20
        assert side["seconds"] > 0
        assert side["start_s"] > 0
        assert 30 < side["memory_mb"] < 2_000
    streamkit_objects, plain = (objects_by_frame(bench.output(name, side)) for side in ("streamkit", "plain"))
    same = agreement(streamkit_objects, plain)
    assert min(same.objects) > 100
    assert min(same.first_share, same.second_share) > 0.95
