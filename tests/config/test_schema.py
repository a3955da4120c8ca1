"""The JSON Schema against a validator, and against what `check` says of the same texts."""

from pathlib import Path
from typing import Any

import pytest

from streamkit.config.describe import json_schema
from streamkit.config.pipeline_config import read_text
from streamkit.config.plugins import load_plugins
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Registry, default_registry, stage

jsonschema = pytest.importorskip("jsonschema")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = "sources: {street: samples/street.mp4}\n"
DETECT = SOURCES + "stages: {detect: {model: demo%s}}\n"
REGISTRY = Registry(
    {name: kind for name, kind in default_registry().items() if kind.__module__.startswith("streamkit.stages.")}
)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema(REGISTRY)


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Any:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture(scope="module")
def validator_with_plugins(root: Path) -> Any:
    registry = REGISTRY.copy()
    load_plugins(root / "plugins", registry)
    return jsonschema.Draft202012Validator(json_schema(registry))


def plain(text: str) -> Any:
    """The text as an editor reads it, by YAML 1.2's rules, with ${NAME} left alone."""
    from streamkit.core.yaml_tree import _TreeBuilder, yaml  # the environment is replaced as a text is read

    class Literally(_TreeBuilder):
        def _environment(self, text: str, node: Any) -> str:
            return text

    return Literally("p.yaml", {}, text).build(yaml.SafeLoader(text)).plain()


GOOD = {
    "a chain": DETECT % "",
    "nothing said of a stage": SOURCES + "stages: {detect: {model: demo}, draw: , draw2: {stage: draw}}",
    "every source form": "sources: {a: x.mp4, b: {uri: 'test://'}, c: {uri: 's/*.png', rate: 5}, "
    "d: {stage: test_pattern, uri: 'test://', pace: realtime}, e: {uri: x.mp4, loop: 3, start: 1min, every: 2}}\n"
    "stages: {jsonl: {path: '-'}}",
    "names of a source": "sources: {a: {uri: x.mp4, name: Gate, group: g, site: s, tags: [t, u], order: 2}, "
    "b: {uri: 'test://', tags: t}}\nstages: {jsonl: {path: '-'}}",
    "units": SOURCES + "stages: {jsonl: {path: a.jsonl, rotate: {every: 1h, size: 100MB}}, "
    "video: {path: a.mp4, bitrate: 4M, segment: 90}}",
    "scores by class": DETECT % ", min_score: {car: 0.5}, engine: onnxruntime, precision: f32, min_size: 4.5",
    "wiring": SOURCES + "stages: {detect: {model: demo}, b: {stage: detect, model: demo, from: decode}, "
    "jsonl: {path: a.jsonl, from: [detect, b], run: {queue: 2, on_error: stop}}}",
    "an insert": SOURCES + "stages: {detect: {model: demo, insert: {after: preprocess, stage: draw, labels: false}}}",
    "a list of inserts": SOURCES + "stages: {detect: {model: demo, insert: [{after: infer, stage: draw}]}}",
    "device and batch": "device: cuda:1\nbatch: {size: 8, max_wait: 20ms}\n" + DETECT % "",
    "devices": "device: ['cuda:0']\nbatch: 16\n" + DETECT % "",
    "processes": "device: {use: cuda, processes: 3}\n" + DETECT % "",
    "processes that are chosen": "device: {use: ['cuda:0', 'cuda:1'], processes: auto}\n" + DETECT % "",
    "processes by the environment": "device:\n  use: ${GPU:-cpu}\n  processes: ${N:-2}\n" + DETECT % "",
    "the environment": "batch: ${SIZE:-4}\n"
    + SOURCES
    + "stages:\n  detect:\n    model: demo\n    min_score: ${SCORE:-0.5}\n    class_agnostic: ${AG:-true}\n",
    "lines and zones": SOURCES
    + "stages: {detect: {model: demo}, track: {stage: track}, line_counter: {line: [[0, 5], [9, 5], [9, 90]]}, "
    "more: {stage: line_counter, line: {door: [[0, 5], [9, 5]]}, margin: 3}, "
    "zone: {polygon: {a: [[0, 0], [50, 0], [9, 90]]}, loitering: 5s}, "
    "direction: {directions: {north: [[0, 9], [0, 2]]}}, "
    "speed: {points: [[0, 0], [9, 0], [9, 9], [0, 9]], ground: [[0, 0], [4, 0], [4, 4], [0, 4]]}}",
    "what is hidden": SOURCES
    + "stages: {detect: {model: demo}, draw: {blur: [car], pixelate: all}, more: {stage: draw, blur: {labels: [car], "
    "zone: {a: [[0, 0], [50, 0], [9, 90]]}, cells: 4}, pixelate: {zone: [[0, 0], [1, 0], [1, 1]], units: share}}}",
    "tests": DETECT % "" + "tests: [{name: it counts}]\n",
    "faults": "sources:\n  a: {uri: x.mp4, fault: {fail: 5s, freeze: {at: 3, for: 2s}, seed: 7}}\n"
    "  b: {stage: test_pattern, fault: {fail: {frame: [3, 9], at: [1s, 2]}, still: {every: 1min, for: 5s}}}\n"
    "  c: {uri: s/*.png, fault: {corrupt: {every: 10s, for: 0.5s, random: true, share: 0.1}, away: {at: 0, for: 3s}}}\n"
    "  d: {uri: x.mp4, fault: {fail: '${WHEN:-3s}', freeze: {at: '${WHEN:-3s}', for: '${HOW:-2s}'}}}\n"
    "stages: {draw: {}}\n",
}
BAD = {
    "no stages": SOURCES,
    "no sources": "stages: {draw: {}}",
    "an unknown key": "devise: cpu\n" + DETECT % "",
    "an unknown option": DETECT % ", min_scor: 0.5",
    "out of range": DETECT % ", min_score: 1.5",
    "a number as text": DETECT % ", top_k: '5'",
    "a missing option": SOURCES + "stages: {detect: {}}",
    "an unknown stage": SOURCES + "stages: {detekt: {model: demo}}",
    "an unknown stage by name": SOURCES + "stages: {a: {stage: detekt, model: demo}}",
    "another word": SOURCES + "stages: {video: {path: a.mp4, encoder: gpu}}",
    "a unit of something else": SOURCES + "stages: {video: {path: a.mp4, segment: 10MB}}",
    "a word in run": SOURCES + "stages: {draw: {run: {on_eror: stop}}}",
    "a source's unknown option": "sources: {a: {uri: x.mp4, speed: 2}}\nstages: {draw: {}}",
    "a source without address": "sources: {a: {loop: true}}\nstages: {draw: {}}",
    "a stage called decode": SOURCES + "stages: {decode: {stage: draw}}",
    "a source as a stage": SOURCES + "stages: {a: {stage: source, uri: x.mp4}}",
    "an insert into no composite": SOURCES + "stages: {draw: {insert: {after: a, stage: draw}}}",
    "an insert of a sink": SOURCES + "stages: {detect: {model: demo, insert: {after: infer, stage: jsonl, path: a}}}",
    "an unknown fault": "sources: {a: {uri: x.mp4, fault: {frezee: {at: 1s, for: 1s}}}}\nstages: {draw: {}}",
    "no fault": "sources: {a: {uri: x.mp4, fault: {}}}\nstages: {draw: {}}",
    "an unknown word in a fault": "sources: {a: {uri: x.mp4, fault: {fail: {att: 1s}}}}\nstages: {draw: {}}",
    "a fault without an end": "sources: {a: {uri: x.mp4, fault: {away: {at: 1s}}}}\nstages: {draw: {}}",
    "a fault at no time": "sources: {a: {uri: x.mp4, fault: {fail: soon}}}\nstages: {draw: {}}",
    "a line of one number": SOURCES + "stages: {line_counter: {line: 5}}",
    "an anchor that is none": SOURCES + "stages: {line_counter: {line: [[0, 5], [9, 5]], anchor: feet}}",
    "an unknown word in what is hidden": SOURCES + "stages: {draw: {blur: {label: [car]}}}",
    "a fault of a stage": SOURCES + "stages: {draw: {fault: {fail: 1s}}}",
    "a device that is none": "device: gpu\n" + DETECT % "",
    "a device twice": "device: ['cuda:0', 'cuda:0']\n" + DETECT % "",
    "no processes": "device: {use: cuda, processes: 0}\n" + DETECT % "",
    "a device's unknown option": "device: {use: cuda, process: 3}\n" + DETECT % "",
    "a batch of none": "batch: 0\n" + DETECT % "",
}


def problems(text: str, folder: Path) -> list[str]:
    return [problem.text for problem in read_text(text, folder=folder, registry=REGISTRY).problems]


@pytest.mark.parametrize("name", GOOD)
def test_the_schema_accepts_what_check_accepts(
    name: str, validator: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    assert [p for p in problems(GOOD[name], root) if "no videos or images" not in p] == []
    assert [error.message for error in validator.iter_errors(plain(GOOD[name]))] == []


@pytest.mark.parametrize("file", sorted(p.name for p in [ROOT / "pipeline.yaml", *(ROOT / "examples").glob("*.yaml")]))
def test_the_schema_accepts_the_shipped_pipelines(file: str, validator_with_plugins: Any) -> None:
    path = ROOT / file if (ROOT / file).is_file() else ROOT / "examples" / file
    errors = validator_with_plugins.iter_errors(plain(path.read_text(encoding="utf-8")))
    assert [error.message for error in errors] == []


@pytest.mark.parametrize("name", BAD)
def test_the_schema_refuses_what_check_refuses(name: str, validator: Any, root: Path) -> None:
    assert problems(BAD[name], root)
    assert not validator.is_valid(plain(BAD[name]))


@pytest.mark.parametrize("name", REGISTRY.names())
def test_every_option_has_its_help_in_the_schema(name: str, schema: dict[str, Any]) -> None:
    from streamkit.core.stage import options

    kind = REGISTRY.get(name)
    assert kind is not None
    described_stage = schema["$defs"][f"stage.{name}"]
    for option in options(kind):
        described = described_stage["properties"][option.name]
        assert described["description"] == option.help
        has_default = not option.required and isinstance(option.default, (bool, int, float, str))
        assert described.get("default") == (option.default if has_default else None)
    assert "title" not in described_stage


class Thing:
    """Nothing that JSON knows."""


def test_stages_of_plugins_are_in_the_schema_with_any_type() -> None:
    with Collecting(Registry()) as registry:

        @stage("odd")
        class Odd(BatchStage):
            """Take a thing."""

            thing: Thing

        @stage("own", writes="events")
        class UserStage(FrameStage):
            """Take a word."""

            word: str = "x"

    validator = jsonschema.Draft202012Validator(json_schema(registry))
    stages = {"odd": {"thing": 1}, "mine": {"stage": "own", "word": "y"}, "own": None}
    ok: dict[str, Any] = {"sources": {"a": "x.mp4"}, "stages": stages}
    assert [error.message for error in validator.iter_errors(ok)] == []
    ok["stages"]["own"] = {"wrod": "y"}
    assert not validator.is_valid(ok)
