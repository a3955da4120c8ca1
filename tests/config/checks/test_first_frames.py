"""The warnings of `check` for which files are opened, and for GPUs that this machine does not have."""

import cv2
import numpy as np
import pytest
from support.clips import write

from streamkit.cli.check import check
from streamkit.config.pipeline_config import read_text
from streamkit.models.onnxruntime_package import has_driver


def warnings(text, folder):
    """What `check` warns of, without the YAML's name."""
    config = read_text(text, folder=folder)
    check(config, open_files=True)
    return [str(warning).removeprefix("pipeline.yaml:") for warning in sorted(config.warnings)]


LINE = "[[5, 60], [40, 60]]"  # below a picture of 64x48, and inside one of 48x64


@pytest.mark.parametrize(
    ("source", "size"),
    [
        ("test://?width=64&height=48", "64x48"),
        ("upright.mp4", "64x48"),
        ("turned.mp4", None),
        ("shots", "64x48"),
        ("rtsp://10.0.0.1/1", None),
    ],
)
def test_a_line_outside_the_frame_is_reported(tmp_path, source, size):
    write(tmp_path / "upright.mp4", frames=2)
    write(tmp_path / "turned.mp4", frames=2, rotation=90)
    (tmp_path / "shots").mkdir()
    cv2.imwrite(str(tmp_path / "shots" / "1.png"), np.zeros((48, 64, 3), np.uint8))
    stages = "  detect: {model: demo}\n  track: {}\n"
    text = f"sources: {{a: '{source}'}}\nstages:\n{stages}  door: {{stage: line_counter, line: {LINE}}}\n"
    outside = f"5:37: door.line is outside of the frame, {size} of a: no object can be in it"
    assert warnings(text, tmp_path) == ([outside] if size else [])


DETECT = "  detect: {model: demo}\n  track: {}\n"
OUT = "[[70, 0], [80, 0], [80, 9]]"


@pytest.mark.parametrize(
    ("stages", "place"),
    [
        (f"{DETECT}  zone: {{polygon: {OUT}}}\n", "6:19: zone.polygon is outside of the frame, 64x48 of a: "),
        (f"{DETECT}  zone: {{polygon: {{till: {OUT}}}}}\n", "6:26: zone.polygon.till is outside of the frame, 64x48 "),
        (f"{DETECT}  zone: {{polygon: {OUT}, sources: [b]}}\n", None),
        (f"{DETECT}  zone: {{polygon: {{till: {OUT}}}, sources: {{till: [b]}}}}\n", None),
        (f"  draw: {{blur: {{zone: {OUT}}}}}\n", "4:23: draw.blur.zone is outside of the frame, 64x48 of a: "),
        (f"  detect: {{model: demo, roi: {OUT}}}\n", "4:30: detect.roi is outside of the frame, 64x48 of a: "),
        (f"{DETECT}  direction: {{directions: {{up: [[900, 900], [900, 0]]}}}}\n", None),
    ],
)
def test_each_kind_of_shape_is_compared_with_its_sources(tmp_path, stages, place):
    sources = "sources:\n  a: test://?width=64&height=48\n"
    text = sources + "stages:\n" + stages
    if "[b]" in stages:
        text = text.replace("stages:", "  b: test://?width=99&height=48\nstages:")
    lines = warnings(text, tmp_path)
    assert len(lines) == (place is not None), lines
    assert place is None or lines[0].startswith(place)


def test_a_shape_in_shares_is_compared_without_the_size_of_a_frame(tmp_path):
    shape = "{stage: line_counter, line: [[0.1, 1.5], [0.9, 1.5]], units: share}"
    text = f"sources: {{a: 'rtsp://10.0.0.1/1'}}\nstages:\n{DETECT}  door: {shape}\n"
    assert warnings(text, tmp_path) == ["5:37: door.line is outside of the frame: no object can be in it"]


def test_an_unreadable_file_is_reported(tmp_path):
    (tmp_path / "text.mp4").write_text("hello")
    (tmp_path / "void.mp4").touch()
    (tmp_path / "folder").mkdir()
    sources = ("text.mp4", "void.mp4", "folder", "none.mp4")
    text = "sources:\n" + "".join(f"  s{i}: {uri}\n" for i, uri in enumerate(sources)) + "stages: {draw: {}}\n"
    lines = warnings(text, tmp_path)
    assert [line.split(": ")[:2] for line in lines] == [[f"{i + 2}:7", f"source s{i}"] for i in range(4)]
    reasons = ("this is a text file", "the file is empty", "contains no videos or images", "there is no file none.mp4")
    assert all(reason in line for reason, line in zip(reasons, lines, strict=True))


@pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize(
    ("device", "places"),
    [("cuda", ["1:9"]), ("[cuda:0, cuda:1]", ["1:9", "1:9"]), ("{use: cuda}", ["1:15"]), ("auto", []), ("cpu", [])],
)
def test_a_missing_gpu_is_reported(tmp_path, device, places):
    text = f"device: {device}\nsources: {{a: 'test://', b: 'test://'}}\nstages: {{draw: {{}}}}\n"
    lines = warnings(text, tmp_path)
    assert [line.split(": ")[0] for line in lines] == places
    assert all("cannot be used on this machine: there is no NVIDIA driver" in line for line in lines)
