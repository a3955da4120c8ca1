"""Accuracy of the methods of `track` by TrackEval, beside other trackers on the same detections.

    python benchmarks/trackers.py --write                          # the tables of docs/tracking-accuracy.md
    python benchmarks/trackers.py --python trackers=/path/to/its/environment/bin/python
    python benchmarks/trackers.py --data MOT17/train --only-matching "*-FRCNN"
    python benchmarks/trackers.py --data dancetrack/val --detections yolox/     # NAME.txt for each sequence

Prints HOTA, IDF1, MOTA and switches for each method on drawn scenes with still and with moving cameras, on TUD-Campus
where the test data is (`$STREAMKIT_TEST_DATA`), and on every sequence with ground truth in the folders of `--data`:
MOT17, MOT20, DanceTrack, SportsMOT and SoccerNet as they are published, in the form of MOTChallenge. Detections are the
sequence's `det/det.txt`, or a file of that form in `--detections`: NAME.txt, NAME/det.txt or NAME/det/det.txt.
Sequences that come without, such as those of DanceTrack and SportsMOT, are tracked on the boxes of their ground truth,
in a table of their own. A package that is not installed is left out, and the output says so; `--python` names the
interpreter of an environment that has it. All options are at their defaults.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support import mot, moving_cameras, scenes

from benchmarks.peers import installed
from benchmarks.performance_page import with_tables
from benchmarks.tracked_sequences import (
    SOURCE,
    Recording,
    UnreadablePicture,
    campus,
    filmed,
    on_disk,
    picture_files,
    set_name,
)
from streamkit.core.data import Batch, Detections
from streamkit.core.stage import Context
from streamkit.core.version import __version__
from streamkit.stages.analytics.track import Track
from streamkit.tracking.methods import BUILT_IN

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tracking-accuracy.md"
METHODS: dict[str, dict[str, Any]] = {f"`{name}`": {"method": name} for name in BUILT_IN}
UNCOMPENSATED = {"`botsort` with `camera_motion: false`": {"method": "botsort", "camera_motion": False}}
PREDICTED = {"`bytetrack` with `predicted: true`": {"predicted": True}}
PEERS = {
    "trackers": ("BoTSORTTracker", "ByteTrackTracker", "OCSORTTracker", "SORTTracker", "CBIoUTracker"),
    "supervision": ("ByteTrack",),
}
STILL_SEEDS = (1, 2, 3, 5, 7, 11, 13, 17, 21, 29)
EVERY = (1, 2, 3, 5)
BATCH = 16

PEER_PROGRAM = """\
import importlib.metadata, inspect, json, pathlib, sys
import numpy as np
import supervision

package, name, inputs, pictures, fps, output = sys.argv[1:]
tracker_class = getattr(__import__(package), name, None)
if tracker_class is None:
    sys.exit(f"{package} {importlib.metadata.version(package)} has no {name}")
tracker = tracker_class(frame_rate=round(float(fps)))
update = getattr(tracker, "update_with_detections", None) or tracker.update
takes_picture = "frame" in inspect.signature(update).parameters
if pictures.endswith(".npy"):
    files = np.load(pictures, mmap_mode="r")
elif pictures != "none":
    files = pathlib.Path(pictures).read_text().splitlines()
loaded = np.load(inputs)
bounds = [0, *loaded["ends"].tolist()]
tracks = []
for number, (begin, end) in enumerate(zip(bounds, bounds[1:])):
    rows = loaded["rows"][begin:end]
    boxes = supervision.Detections(
        xyxy=rows[:, :4].astype(np.float32), confidence=rows[:, 4].astype(np.float32), class_id=rows[:, 5].astype(int)
    )
    options = {}
    if takes_picture and pictures != "none":
        if isinstance(files, list):
            import cv2
            options["frame"] = cv2.imread(files[number])
        else:
            options["frame"] = np.ascontiguousarray(files[number][..., ::-1])
    tracked = update(boxes, **options)
    ids = tracked.tracker_id if tracked.tracker_id is not None else np.zeros(0, int)
    tracks += [(number, int(id_) + 1, *box) for id_, box in zip(ids, tracked.xyxy.tolist()) if id_ >= 0]
np.save(output, np.array(tracks, float).reshape(-1, 6))
print(json.dumps({"version": importlib.metadata.version(package)}))
"""


# --------------------------------------------------------------------------------------------------------- trackers


def tracked(recording: Recording, methods: dict[str, dict[str, Any]]) -> dict[str, mot.Boxes]:
    """The tracks of a recording by each method, in one pass over its pictures."""
    stages = {}
    for name, options in methods.items():
        stage = Track(**options)
        stage.context = Context("track")
        stage.open()
        stages[name] = stage, {SOURCE: stage.new_state(SOURCE)}
    tracks: dict[str, mot.Boxes] = {name: [] for name in methods}
    frames = recording.frames()
    while batch := [frame for _, frame in zip(range(BATCH), frames, strict=False)]:
        tables = [frame.tables["detect"] for frame in batch]
        for name, (stage, states) in stages.items():
            table = Detections.concat(tables, rows=range(len(batch)))
            done = stage.process(Batch(list(batch), tables={"detect": table}), states).table("detect")
            has_track = done.track_id > 0
            for row in range(len(batch)):
                rows = has_track & (done.batch_row == row)
                tracks[name].append((done.track_id[rows], done.xyxy[rows].astype(float)))
    return tracks


class Peers:
    """Other packages' trackers, each run in an environment that has it.

    Args:
        packages: of `PEERS`.
        pythons: the interpreter of each package, unless it is this one.

    Attributes:
        versions: of the packages that have run.
    """

    def __init__(self, packages: Sequence[str], pythons: dict[str, str]) -> None:
        self._pythons = {package: pythons.get(package, sys.executable) for package in packages}
        self._names = [(package, name) for package in packages for name in PEERS[package]]
        self.versions: dict[str, str] = {}
        for package, python in self._pythons.items():
            if not installed(python, package):
                self._leave_out(package, "it is not installed")

    def _leave_out(self, dotted: str, reason: str) -> None:
        """Run a package, or a tracker as PACKAGE.NAME, no more, and say why."""
        package, _, tracker = dotted.partition(".")
        self._names = [(p, name) for p, name in self._names if p != package or tracker not in ("", name)]
        print(f"{dotted}: left out: {reason}; name an environment with --python {package}=PYTHON")

    def tracked(self, recording: Recording, folder: Path) -> dict[str, mot.Boxes]:
        """The tracks of a recording by each tracker that is there."""
        inputs = folder / "detections.npz"
        np.savez(inputs, rows=np.concatenate(recording.rows), ends=np.cumsum([len(rows) for rows in recording.rows]))
        tracks = {}
        for package, name in list(self._names):
            tracker_tracks = self._run(package, name, recording, inputs, folder / "tracks.npy")
            if tracker_tracks is not None:
                tracks[f"`{name}` of `{package}`"] = tracker_tracks
        return tracks

    def _run(self, package: str, name: str, recording: Recording, inputs: Path, output: Path) -> mot.Boxes | None:
        python = self._pythons[package]
        pictures = recording.pictures
        if pictures is not None and pictures.is_dir():
            listed = output.with_name("pictures.txt")
            listed.write_text("\n".join(str(path.resolve()) for path in picture_files(pictures)))
            pictures = listed
        places = [str(inputs), str(pictures or "none"), str(recording.fps), str(output)]
        command = [python, "-c", PEER_PROGRAM, package, name, *places]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=output.parent)
        if completed.returncode:
            reason = (completed.stderr.strip().splitlines() or ["it gave no tracks"])[-1]
            self._leave_out(f"{package}.{name}", reason)
            return None
        self.versions[package] = json.loads(completed.stdout.splitlines()[-1])["version"]
        rows = np.load(output)
        frames = [rows[rows[:, 0] == number] for number in range(len(recording.rows))]
        return [(frame[:, 1].astype(np.int64), frame[:, 2:]) for frame in frames]


# ----------------------------------------------------------------------------------------------------------- tables


def measured(recordings: Iterator[Recording], methods: dict[str, dict[str, Any]], peers: Peers) -> dict[str, list[Any]]:
    """For each tracker, truth and tracks of each recording as they count."""
    pairs: dict[str, list[Any]] = {}
    for recording in recordings:
        with tempfile.TemporaryDirectory(prefix="streamkit-trackers-") as folder:
            try:
                tracks = tracked(recording, methods) | peers.tracked(recording, Path(folder))
            except UnreadablePicture as error:
                print(f"{recording.name}: left out: {error}")
                continue
        for name, boxes in tracks.items():
            pairs.setdefault(name, []).append(mot.without_ignored(recording.truth, boxes))
        print(f"{recording.name}: {len(recording.rows)} frames", file=sys.stderr, flush=True)
    return pairs


def table(pairs: dict[str, list[Any]]) -> str:
    """The scores of all recordings together, a row for each tracker."""
    rows = [["", "HOTA", "IDF1", "MOTA", "switches", "IoU of the boxes"], ["---"] * 6]
    for name, sequences in pairs.items():
        truth, tracks = (mot.together([pair[side] for pair in sequences]) for side in (0, 1))
        with contextlib.redirect_stdout(io.StringIO()):
            scores = mot.scores(truth, tracks)
        shares = [_share(scores[metric]) for metric in ("HOTA", "IDF1", "MOTA")]
        rows.append([name, *shares, str(scores["switches"]), _share(mot.box_quality(truth, tracks))])
    return "".join(f"|{'|'.join(row)}|\n" for row in rows)


def _share(figure: float) -> str:
    return f"{figure:.3f}".replace("0.", ".", 1)


def moving_table(seeds: Sequence[int], peers: Peers) -> str:
    """Drawn scenes with moving cameras."""
    with tempfile.TemporaryDirectory(prefix="streamkit-scenes-") as folder:
        recordings = (filmed(seed, moving_cameras.kind_of(seed), Path(folder)) for seed in seeds)
        return table(measured(recordings, METHODS | UNCOMPENSATED, peers))


def still_tables(seeds: Sequence[int]) -> tuple[str, str]:
    """Drawn scenes with the demo network and a still camera: each method, and inference on every n-th frame."""
    methods = METHODS | PREDICTED
    pairs: dict[str, list[Any]] = {name: [] for name in methods}
    thinned: dict[str, list[Any]] = {f"`every: {every}`": [] for every in EVERY}
    for seed in seeds:
        with tempfile.TemporaryDirectory(prefix="streamkit-scenes-") as folder:
            video, truth = scenes.scene(seed, Path(folder))
        for name, options in methods.items():
            pairs[name].append(mot.counted(truth, mot.tracked(video, **options)))
        for name, every in zip(thinned, EVERY, strict=True):
            thinned[name].append(mot.counted(truth, mot.tracked(mot.every_nth(video, every))))
        print(f"street {seed}: {len(video)} frames", file=sys.stderr, flush=True)
    return table(pairs), table(thinned)


def set_tables(folder: Path, options: argparse.Namespace, peers: Peers) -> Iterator[str]:
    """A heading and a table for the sequences in a folder that have detections, and for those that have none."""
    try:
        recordings = list(on_disk(folder, options.only_matching, options.detections))
    except FileNotFoundError as error:
        sys.exit(f"--data {error}")
    for oracle in (False, True):
        same = [recording for recording in recordings if recording.oracle == oracle]
        if same:
            count = "a sequence" if len(same) == 1 else f"{len(same)} sequences"
            boxes = "the boxes of the ground truth" if oracle else "detections"
            heading = f"## {set_name(folder)}\n\nOn {boxes} of {count}:\n\n"
            if pairs := measured(iter(same), METHODS, peers):
                yield heading + table(pairs)


def about(peers: Peers) -> str:
    """When the tables were measured, and with which versions."""
    today = date.today()
    packages = {"TrackEval": version("trackeval"), "OpenCV": version("opencv-python-headless"), **peers.versions}
    names = ", ".join(f"{name} {number}" for name, number in packages.items())
    return f"Measured on {today.day} {today:%B %Y}: streamkit {__version__}, {names}.\n"


def main() -> None:
    """Measure what the options name, and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, action="append", default=[], help="a folder of sequences; repeatable")
    parser.add_argument("--only-matching", default="*", metavar="PATTERN", help="sequences of --data by their names")
    parser.add_argument("--detections", type=Path, help="a folder with NAME.txt for each sequence of --data")
    parser.add_argument("--seeds", type=int, default=20, help="drawn scenes with moving cameras; 0 for none")
    parser.add_argument("--streets", type=int, default=len(STILL_SEEDS), help="drawn scenes with still cameras")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="other packages to run")
    parser.add_argument("--python", action="append", default=[], metavar="PACKAGE=PYTHON")
    parser.add_argument("--write", action="store_true", help=f"write the tables of {PAGE.name}")
    options = parser.parse_args()
    peers = Peers(options.peers, dict(entry.split("=", 1) for entry in options.python))
    tables: dict[str, str] = {}
    data = Path(os.environ.get("STREAMKIT_TEST_DATA", ""))
    if (data / "mot").is_dir():
        tables["campus"] = table(measured(iter([campus(data)]), METHODS, peers))
    if options.seeds:
        tables["moving"] = moving_table(moving_cameras.SEEDS[: options.seeds], peers)
    if options.streets:
        tables["still"], tables["every"] = still_tables(STILL_SEEDS[: options.streets])
    sets = [part for folder in options.data for part in set_tables(folder, options, peers)]
    if sets:
        tables["sets"] = "\n".join(sets)
    if tables:
        tables["measured"] = about(peers)
    for name, text in tables.items():
        print(f"\n{name}\n\n{text}")
    if options.write:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
