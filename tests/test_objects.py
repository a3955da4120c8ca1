"""Objects on frames that a detector leaves out; `of:` is tested in stages/test_objects.py."""

import pytest


def warnings(text, root, tmp_path):
    from streamkit.config import read
    from streamkit.graph import build

    path = tmp_path / "p.yaml"
    sink = f"  jsonl: {{path: {tmp_path}/o.jsonl}}\n"
    path.write_text(f"sources: {{a: {root}/samples/street.mp4}}\nstages:\n{text}{sink}")
    return [str(one).removeprefix(f"{path}:") for one in build(read(path)).config.warnings]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ("  detect: {model: demo, every: 3}\n", True),
        ("  detect: {model: demo}\n", False),
        ("  detect: {model: demo, every: 3}\n  track: {}\n", False),
        ("  detect: {model: demo, every: 3}\n  draw: {}\n  track: {from: detect}\n", False),
        ("  track: {from: other}\n  other: {stage: detect, model: demo, from: decode}\n"
         "  detect: {model: demo, every: 3, from: decode}\n", True),
    ],
)  # fmt: skip
def test_frames_without_objects_are_warned_of_where_nothing_tracks(stages, said, root, tmp_path):
    told = warnings(stages, root, tmp_path)
    assert bool(told) == said
    if said:
        assert "detect.every: 3 leaves all other frames without objects" in told[0]
        assert told[0].split(": ", 1)[0].endswith("32") or told[0].startswith("5:")
