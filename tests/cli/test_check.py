import time
from pathlib import Path

import pytest

from streamkit.batch.pipeline import recorded
from streamkit.cli.check import check
from streamkit.config.checks.stages import check_networks
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.user_cache import user_cache

ROOT = Path(__file__).resolve().parents[2]
CARD = "task: detect\nfamily: yolox\nfile: {name}.onnx\ninput: {{size: [64, 64]}}\nlabels: [a]\nlicense: none\n"


@pytest.fixture
def cards(tmp_path):
    """A folder with cards: two whose networks are not there, one of them with an address, and one with a wrong file."""
    for name in ("one", "two", "text"):
        (tmp_path / f"{name}.yaml").write_text(CARD.format(name=name))
    with (tmp_path / "two.yaml").open("a") as file:
        file.write(f"url: https://example.org/two.onnx\nsha256: {'ab' * 32}\n")
    (tmp_path / "text.onnx").write_text("not a network")
    return tmp_path


def check_problems(text, folder=ROOT):
    with pytest.raises(ConfigError) as caught:
        check(read_text(text, folder=folder))
    return [str(problem).removeprefix("pipeline.yaml:") for problem in caught.value.problems]


def test_check_covers_graph_networks_and_tests():
    text = (ROOT / "pipeline.yaml").read_text()
    assert list(check(read_text(text, folder=ROOT)).nodes) == list(build(read_text(text, folder=ROOT)).nodes)


def test_a_missing_network_is_reported_where_the_pipeline_names_its_card(cards):
    stages = "  one: {stage: detect, model: one}\n  b:\n    stage: detect\n    model: two\n"
    assert check_problems(f"sources: {{a: 'test://'}}\nstages:\n{stages}", cards) == [
        f"3:31: one: model card one ({cards}/one.yaml): its file {cards}/one.onnx does not exist; put the ONNX file "
        f"there; the card {cards}/one.yaml has no url to fetch it from",
        f"6:12: b: model card two ({cards}/two.yaml): its file "
        f"{user_cache('models', 'two-abababababab.onnx')} does not exist; fetch it with: streamkit models pull two",
    ]


def test_an_unsuitable_network_is_reported_where_the_pipeline_names_its_card(cards):
    (problem,) = check_problems("sources: {a: 'test://'}\nstages:\n  detect: {model: text}\n", cards)
    assert problem.startswith(
        f"3:19: detect: model card text ({cards}/text.yaml): {cards}/text.onnx is not an ONNX model"
    )


def test_a_card_of_several_stages_is_reported_at_each(cards):
    stages = "  x: {stage: detect, model: one}\n  y: {stage: detect, model: one}\n"
    graph = build(read_text(f"sources: {{a: 'test://'}}\nstages:\n{stages}", folder=cards))
    with pytest.raises(ConfigError) as caught:
        check_networks(graph)
    assert [problem.line for problem in caught.value.problems] == [3, 4]


def test_problems_of_networks_and_tests_are_reported_together(cards):
    text = (
        "sources: {a: 'test://'}\nstages:\n  detect: {model: one}\n  draw: {}\n"
        "tests:\n  - {name: 5, insert_at: drow, given: [{}], expect: {count: 0}}\n"
    )
    assert [problem.split(": ")[0] for problem in check_problems(text, cards)] == ["3:19", "6:12", "6:26"]


def test_the_form_of_tests_is_checked_with_an_invalid_graph():
    text = (
        "sources: {a: 'test://'}\nstages:\n  drow: {}\n"
        "tests:\n  - {name: 5, insert_at: drow, given: [{}], expect: {count: 0}}\n"
    )
    assert check_problems(text) == [
        "3:3: unknown stage 'drow'; did you mean 'draw'?",
        "5:12: test.name must be text, got 5",
    ]


VALID = """\
device: cpu
sources:
  street: samples/street.mp4
  gate: {uri: 'rtsp://10.0.0.1/1', timeout: 5s}
stages:
  detect: {model: demo, min_score: 0.4}
  track: {}
  zone: {polygon: {till: [[0, 0], [99, 0], [99, 99]]}, labels: [person]}
  crowd: {stage: rule, when: count(person in zone.till) > 3 and count(car) > 1, clear: absent(person)}
  draw: {from: detect.postprocess}
  other: {stage: jsonl, path: out/a.jsonl}
  jsonl: {path: 'out/{source}.jsonl'}
  mqtt: {url: mqtt://localhost, send: events, when: [zone.entered, alarms], from: crowd}
alarms:
  down: {when: down_s > 3, to: mqtt}
tests:
  - {name: x, insert_at: zone, given: [{track_id: [1], xyxy: [[1, 1, 2, 2]]}], expect: {count: 1}}
"""
MISTAKES = [
    ("device: cpu", "device: cup", "1:9: device must be auto, cpu, cuda or cuda:N"),
    ("timeout: 5s", "timeot: 5s", "source has no option 'timeot'"),
    ("min_score: 0.4", "min_score: 4", "detect.min_score must be 0 to 1"),
    ("  track: {}", "  track: {min_iou: x}", "track.min_iou must be"),
    ("labels: [person]", "labels: [person, persn]", "zone.labels: no detector above finds 'persn'"),
    ("zone.till) > 3", "zone.tll) > 3", "crowd.when: column 17: zone has no area 'tll'"),
    ("count(car) > 1", "count(cr) > 1", "there is neither a name nor a class 'cr'"),
    ("absent(person)", "absent(bik)", "crowd.clear: column 8: there is neither a name nor a class 'bik'"),
    ("from: detect.postprocess", "from: detect.postproces", "draw.from: there is no stage 'detect.postproces'"),
    ("path: out/a.jsonl", "path: 'out/{source}.jsonl'", "jsonl: other writes out/{source}.jsonl already"),
    ("[zone.entered, ", "[zone.entred, ", "zone writes no event 'zone.entred'"),
    ("send: events", "send: events, timeout: x", "mqtt.timeout must be"),
    ("down_s > 3", "down > 3", "alarms.down.when: alarms know no name 'down'"),
    ("to: mqtt", "to: mqtz", "alarms.down.to must name emitters, got 'mqtz'"),
    ("insert_at: zone", "insert_at: zon", "insert_at: there is no stage 'zon'"),
    ("expect: {count: 1}", "expect: {count: x}", "test.expect.count must be"),
]


def problems_of(mistakes):
    """Problems of the valid pipeline with these mistakes."""
    text = VALID
    for right, wrong, _ in mistakes:
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    return check_problems(text)


def test_a_pipeline_without_mistakes_is_valid():
    assert check(read_text(VALID, folder=ROOT)).uncertain == set()


@pytest.mark.parametrize(("right", "wrong", "problem"), MISTAKES, ids=[wrong.strip() for _, wrong, _ in MISTAKES])
def test_each_mistake_is_a_single_problem(right, wrong, problem):
    (reported,) = problems_of([(right, wrong, problem)])
    assert problem in reported


def test_no_mistake_hides_another():
    reported = problems_of(MISTAKES)
    assert len(reported) == len(MISTAKES)
    assert all(any(problem in text for text in reported) for _, _, problem in MISTAKES)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("  detect: {model: demo", "  detect: {model: dmo"),
        ("  detect: {model: demo", "  detect: {modl: demo"),
        ("  detect: {model: demo", "  detct: {model: demo"),
        ("polygon: {till: [[0, 0], [99, 0], [99, 99]]}", "polygon: {till: [[0, 0]]}"),
        ("  gate: {uri: 'rtsp://10.0.0.1/1', timeout: 5s}", "  gate: {stage: nonesuch}"),
        ("  gate: {uri: 'rtsp://10.0.0.1/1', timeout: 5s}", "  gate:"),
        ("  track: {}", "  track: {from: [detect, nowhere]}"),
        ("  down: {when: down_s > 3", "  down: {when: down_s >"),
    ],
)
def test_an_unreadable_part_causes_no_further_problem(right, wrong):
    text = VALID.replace(right, wrong).replace("from: detect.postprocess", "from: track")
    assert text.count(wrong) == 1
    assert len(check_problems(text)) == 1, check_problems(text)


def test_repeatedly_merging_branches_are_checked_quickly(tmp_path):
    lines = ["sources: {a: 'test://'}", "stages:"]
    above = "decode"
    for i in range(40):  # 2 ** 40 ways through
        lines += [f"  l{i}: {{stage: draw, from: {above}}}", f"  r{i}: {{stage: draw, from: {above}}}"]
        above = f"[l{i}, r{i}]"
    lines += [f"  video: {{path: a.mp4, encoder: copy, from: {above}}}", "  jsonl: {path: a.jsonl}"]
    config = read_text("\n".join(lines), folder=tmp_path)
    began = time.process_time()
    with pytest.raises(ConfigError, match="encoder: copy takes the source's own packets, without what is drawn"):
        check(config)
    graph = build(read_text("\n".join(lines).replace(", encoder: copy", ""), folder=tmp_path))
    assert list(recorded(graph).nodes) == []  # sinks and what only draws
    assert time.process_time() - began < 10
