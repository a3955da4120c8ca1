"""Put records of real runs into docs/schema*.md: `python docs/schema/examples.py`, from the checkout; half a minute.

With $STREAMKIT_TEST_DATA, or shared/data beside the checkout, also those of networks that do not ship.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("schema.md", "schema-examples.md")]
DATA = Path(os.environ.get("STREAMKIT_TEST_DATA", ROOT.parent / "shared" / "data"))
SPOOL = "9f3c51d20a7e"  # an id is the spool's name, which is another at each run, and a number

BLOCK = re.compile(r"<!-- example: (\S+) -->\n.*?<!-- /example -->\n", re.DOTALL)

STREET = """
device: cpu
sources: {street: samples/street.mp4}
stages:
  detect: {model: demo, every: 3}
  track: {}
  color: {stage: classify, model: color, of: detect.car, min_size: 12, from: track}
  look: {stage: embed, model: look, of: detect.person, record: true, from: track}
  speed: {from: track, points: [[0, 215], [640, 200], [640, 360], [0, 360]],
          ground: [[0, 0], [40, 0], [20, 12], [0, 12]], limit_kmh: 5, debounce: 200ms}
  direction: {from: track}
  crossing: {stage: line_counter, from: track, line: [[320, 60], [320, 360]], window: 1s}
  zone: {from: track, polygon: {middle: [[240, 90], [400, 90], [400, 340], [240, 340]]},
         loitering: 1s, more_than: 1, window: 1s}
  proximity: {from: track, distance: 40}
  looks: {stage: embed, model: stripes, of: detect, min_size: 8, from: track}
  identify: {from: looks, predicted: false, track_ttl: 200ms, left_after: 200ms}
  heatmap: {from: track, path: "out/{source}-heat.png", every: 1s}
  rule: {from: track, when: "count(car) > 1"}
  snapshot: {from: crossing, when: crossing.crossed, after: 200ms, path: "out/{source}/{time}_{label}.jpg"}
  collect: {from: crossing, when: crossing.crossed, path: out/collected}
  record: {from: crossing, when: crossing.crossed, before: 1s, after: 500ms, path: "out/{source}/{time}-{kind}.mp4"}
  scene: {stage: classify, model: color, from: decode}
"""
PLATES = """
device: cpu
sources: {plates: samples/plates.mp4}
stages:
  detections: {path: samples/plates.truth.jsonl}
  track: {}
  plate: {stage: read, model: plates, of: detections.plate, pattern: de}
"""
REAL = """
device: cpu
sources: {gate: {uri: DATA/videos/one-by-one-person-detection.mp4, start: 10s}}
stages:
  pose: {model: movenet, from: decode}
  segment: {model: seg, from: decode}
  regions: {stage: segment, model: deeplab, from: decode}
"""
EXAMPLES: dict[str, tuple[str, str, str, str]] = {
    # name: pipeline, the stage whose records are looked at, what is sent of them, what the first of them must have
    "frames": (STREET, "crossing", "frames", "event.crossed"),
    "detect": (STREET, "detect", "objects", "label"),
    "track": (STREET, "track", "objects", "track_id"),
    "predicted": (STREET, "track", "objects", "predicted"),
    "classify": (STREET, "color", "objects", "attributes"),
    "scene": (STREET, "scene", "frames", "attributes"),
    "embed": (STREET, "look", "objects", "embedding"),
    "crossed": (STREET, "crossing", "events", "event.crossed"),
    "counted": (STREET, "crossing", "events", "event.counted"),
    "entered": (STREET, "zone", "events", "event.entered"),
    "read": (PLATES, "plate", "events", "event.read"),
    "identify": (STREET, "identify", "objects", "identity"),
    "raised": (STREET, "rule", "events", "event.raised"),
    "clip": (STREET, "record", "events", "clip"),
    "crop": (STREET, "detect", "crops", "crop"),
    "pose": (REAL, "pose", "objects", "keypoints"),
    "segment": (REAL, "segment", "objects", "mask"),
    "regions": (REAL, "regions", "frames", "segmentation"),
}

WHOLE = {"frames", "detect", "crossed"}
"""Examples that show the whole record, one of each kind."""


def records(folder: Path, pipeline: str, limit: int) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Run a pipeline in `folder`; return the records behind each stage that an example is of, by what is sent."""
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read_text
    from streamkit.core.data import Device
    from streamkit.runtime.pipeline import PipelineRun
    from streamkit.runtime.run import RunConfig

    wanted = dict.fromkeys((stage, send) for text, stage, send, _ in EXAMPLES.values() if text is pipeline)
    sinks = [
        f"  {stage}-{send}: {{stage: sqlite, from: {stage}, path: 'out/{stage}-{send}.db', table: records, "
        f"spool: {{path: 'spool/{stage}-{send}'}}, "
        + ("send: objects, crops: {max_size: 48}}" if send == "crops" else f"send: {send}}}")
        for stage, send in wanted
    ]
    text = pipeline.replace("DATA", str(DATA)) + "\n".join(sinks) + "\n"
    built = build(read_text(text, folder=folder))
    code = PipelineRun(built, Device("cpu"), RunConfig(limit=limit)).run()
    if code:
        raise RuntimeError(f"the run ended with {code}")
    return {(stage, send): list(_rows(Path("out") / f"{stage}-{send}.db")) for stage, send in wanted}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with sqlite3.connect(path) as database:
        for (text,) in database.execute("SELECT record FROM records ORDER BY rowid"):
            record = json.loads(text)
            yield {**record, "id": f"{SPOOL}-{record['id'].rpartition('-')[2]}"}
    database.close()


def has(record: dict[str, Any], content: str) -> bool:
    """Whether a record has what is asked: an event of that name, or a key with something in it."""
    events = record.get("events") or [record.get("event", {})]
    if content.startswith("event."):
        return any(event.get("kind") == content.removeprefix("event.") for event in events)
    return any(place.get(content) for place in (record, record.get("object", {}), events[0].get("data", {})))


def complete() -> dict[str, dict[str, Any]]:
    """The record of each example, as it was sent; those of networks that are not here are left out."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.cards import card_of

    example_records: dict[str, dict[str, Any]] = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            os.chdir(folder)
            (folder / "samples").symlink_to(ROOT / "samples")
            runs = {STREET: records(folder, STREET, 80), PLATES: records(folder, PLATES, 10)}
            if DATA.is_dir():
                for card in ("movenet", "seg", "deeplab"):
                    card_of(card, DATA, folder)
                runs[REAL] = records(folder, REAL, 1)
        finally:
            os.chdir(before)
    for example, (pipeline, stage, send, content) in EXAMPLES.items():
        there = runs.get(pipeline, {}).get((stage, send), [])
        if first := next((record for record in there if has(record, content)), None):
            example_records[example] = first
    expected = (name for name, (pipeline, *_) in EXAMPLES.items() if pipeline in runs)
    if missing := [name for name in expected if name not in example_records]:
        raise RuntimeError(f"no record for {', '.join(missing)}")
    return example_records


def shortened(content: Any) -> Any:
    """The value with its long texts, and lists of many things, cut off."""
    if isinstance(content, str):
        return content if len(content) <= 60 else f"{content[:40]}…"
    if isinstance(content, dict):
        return {key: shortened(child) for key, child in content.items()}
    if isinstance(content, list):
        limit = 2 if content and isinstance(content[0], (dict, list)) else 4
        first = [shortened(child) for child in content[:limit]]
        return [*first, f"… {len(content) - limit} more"] if len(content) > limit else first
    return content


def as_text(content: Any, room: int = 112, indent: int = 0) -> str:
    """JSON in which what fits on a line stands on one."""
    line = json.dumps(content, ensure_ascii=False)
    if len(line) + indent <= room or not isinstance(content, (dict, list)) or not content:
        return line
    inner = " " * (indent + 1)
    if isinstance(content, list):
        return "[" + f",\n{inner}".join(as_text(child, room, indent + 1) for child in content) + "]"
    parts: list[str] = []
    for key, child in content.items():
        head = f"{json.dumps(key)}: "
        text = head + as_text(child, room, indent + 1 + len(head))
        last = parts[-1] if parts else ""
        if parts and "\n" not in last + text and indent + 1 + len(last) + 2 + len(text) <= room:
            parts[-1] = f"{last}, {text}"
        else:
            parts.append(text)
    return "{" + f",\n{inner}".join(parts) + "}"


def excerpt(example: str, record: dict[str, Any]) -> dict[str, Any]:
    """What a page shows of a record: all of it, or the part that the stage makes."""
    if example in WHOLE:
        return record
    part = record.get("object") or record.get("event")
    return part or {key: record[key] for key in ("attributes", "segmentation") if key in record}


def block(example: str, record: dict[str, Any]) -> str:
    """The marked block of an example."""
    text = as_text(shortened(excerpt(example, record)))
    return f"<!-- example: {example} -->\n```json\n{text}\n```\n<!-- /example -->\n"


def main() -> None:
    """Write the pages again."""
    example_records = complete()
    pages = {path: path.read_text(encoding="utf-8") for path in PAGES}
    named = BLOCK.findall("".join(pages.values()))
    if missing := [name for name in EXAMPLES if name not in named]:
        raise SystemExit(f"docs/schema*.md has no block for {', '.join(missing)}")

    def fresh(match: re.Match[str]) -> str:
        return block(match[1], example_records[match[1]]) if match[1] in example_records else match[0]

    for path, text in pages.items():
        path.write_text(BLOCK.sub(fresh, text), encoding="utf-8")


if __name__ == "__main__":
    main()
