"""Prints the figures of docs/tracking-accuracy.md: python tests/tracking/measure.py DATA, the folder of test data.

Takes some minutes. The seeds are those of ten drawn scenes, the film that ships among them.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from support import mot, scenes  # noqa: E402  the path is set just above

from streamkit.tracking.methods import BUILT_IN  # noqa: E402

SEEDS = (1, 2, 3, 5, 7, 11, 13, 17, 21, 29)
METHODS = tuple(BUILT_IN)


def main(data: Path) -> None:
    """Measure everything, a line of a table each."""
    campus_rows = mot.read(data / "mot" / "TUD-Campus" / "det" / "det.txt")
    truth = mot.by_frame(mot.read(data / "mot" / "TUD-Campus" / "gt" / "gt.txt"), 71)
    for method in METHODS:
        scores = mot.scores(
            truth, mot.tracked(mot.frames_with_detections(campus_rows, 1 / 25, 640, 480), method=method)
        )
        figures = f"{scores['MOTA']:.3f} | {scores['IDF1']:.3f} | {scores['switches']}"
        print(f"| TUD-Campus {method} | {figures} |", flush=True)
    people = mot.frames_with_detections(mot.read(data / "mot" / "PETS09-S2L1" / "det" / "det.txt"), 1 / 7, 768, 576)
    for name, video, step_s in (("PETS09-S2L1", people, 1 / 7), ("vtest YOLOX-nano", scenes.campus(data), 1 / 10)):
        for method in METHODS:
            long = mot.lengths(mot.tracked(video, method=method))
            print(f"| {name} {method} | {len(long)} | {long.mean() * step_s:.1f} s | {(long < 10).sum()} |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        drawn = [scenes.scene(seed, Path(folder)) for seed in SEEDS]
    for options in [{"method": method} for method in METHODS] + [{"predicted": True}]:
        show(drawn, 1, options)
    for every in (1, 2, 3, 5):
        show(drawn, every, {})


def show(drawn: list, every: int, options: dict) -> None:
    """One line: the scores of all scenes together."""
    pairs = [mot.counted(truth, mot.tracked(mot.every_nth(video, every), **options)) for video, truth in drawn]
    truth, tracks = (mot.together([pair[side] for pair in pairs]) for side in (0, 1))
    scores = mot.scores(truth, tracks)
    box = mot.box_quality(truth, tracks)
    line = f"{scores['MOTA']:.3f} | {scores['IDF1']:.3f} | {scores['switches']} | {box:.3f} |"
    print(f"| scenes every {every} {options} | {line}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
