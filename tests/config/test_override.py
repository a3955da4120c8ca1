"""`--set`: values that replace and add, and what is wrong with them."""

import pytest
from support.configs import SMALL, _in_the_checkout  # noqa: F401  a fixture

from streamkit.config.pipeline_config import read


def read_with(tmp_path, **values):
    path = tmp_path / "p.yaml"
    path.write_text(SMALL)
    return read(path, set_={name.replace("__", "."): value for name, value in values.items()})


def test_set_replaces_and_adds(tmp_path):
    made = read_with(
        tmp_path, stages__detect__min_score="0.5", stages__detect__labels="[car]", device="cpu", batch="3",
        sources__b="samples/street.mp4", sources__a__loop="2", sources__a__fault__fail="5s",
        stages__jsonl__run__on_error="stop",
    )  # fmt: skip
    assert made.problems == []
    assert made.stages[0].options["min_score"] == 0.5
    assert made.stages[0].options["labels"] == ["car"]
    assert made.stages[1].run.on_error == "stop"
    assert (made.device, made.batch.size) == ("cpu", 3)
    assert [source.id for source in made.sources] == ["a", "b"]
    assert made.sources[0].options == {"uri": "samples/street.mp4", "loop": 2}
    assert made.sources[0].fault.fail == {"at": 5.0}


def test_set_gives_a_fault_to_a_source_that_is_only_an_address(tmp_path):
    made = read_with(tmp_path, sources__a__fault__freeze="{at: 1s, for: 2s}")
    assert made.problems == []
    assert made.sources[0].options == {"uri": "samples/street.mp4"}
    assert made.sources[0].fault.freeze == {"at": 1.0, "for": 2.0}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"stages__detct__min_score": "1"},
            "--set: stages.detct.min_score: there is no 'detct'; did you mean 'detect'?",
        ),
        (
            {"stage__detect__min_score": "1"},
            "--set: stage.detect.min_score: there is no 'stage'; did you mean 'stages'?",
        ),
        ({"stages__jsonl__rn__on_error": "stop"}, "jsonl has no option 'rn'"),
        ({"stages__detect__min_scor": "1"}, "detect has no option 'min_scor'; did you mean 'min_score'?"),
        ({"stages__detect__min_score": "two"}, "--set stages.detect.min_score: detect.min_score must be"),
        ({"device__x": "1"}, "--set: device.x: there is no 'device'"),
        ({"sources__a__uri__x": "1"}, "sources.a.uri is not a mapping, so x cannot be set in it"),
        ({"stages__detect__model__x": "1"}, "stages.detect.model is not a mapping, so x cannot be set in it"),
        ({"devise": "cpu"}, "unknown key 'devise'; did you mean 'device'?"),
    ],
)
def test_what_is_wrong_in_set_is_told(tmp_path, values, told):
    found = [str(problem) for problem in read_with(tmp_path, **values).problems]
    assert len(found) == 1
    assert told in found[0]
