"""Whole runs on made-up sources: what reaches the sinks, what stays apart, and the report."""

import json
import tracemalloc

import numpy as np
import pytest
from support.messages import collect
from support.noting import EXTRA, LOG, _nothing_is_left_behind, entries_of, pipeline, run_fixture, test_uri  # noqa: F401  fixtures

from streamkit.core.data import Frame
from streamkit.core.stage import Collecting, Registry, Sink, stage
from streamkit.runtime.execution.meters import Histogram

# ------------------------------------------------------------------------------------------------ what reaches sinks


def test_frames_of_every_source_arrive_in_order(run):
    sizes = {"a": (64, 48, 7), "b": (128, 96, 3), "c": (34, 18, 11)}
    result = run(
        {n: test_uri(width=w, height=h, frames=f) for n, (w, h, f) in sizes.items()},
        "find: {run: {instances: 2}}",
        "in_order: {}",
        "collect: {}",
        head="batch: 4",
    )
    assert result.code == 0
    assert entries_of("out of order") == []
    for name, (width, height, frames) in sizes.items():
        records = result.records[name]
        assert [record["frame"] for record in records] == list(range(frames))
        assert [len(record["objects"]) for record in records] == [i % 3 for i in range(frames)]
        assert all([record["width"], record["height"]] == [width, height] for record in records if "width" in record)
    batches = [entry for entry in LOG if isinstance(entry, list)]
    assert any(len({size for _, size in batch}) > 1 for batch in batches)  # sizes share a batch
    assert max(map(len, batches)) <= 4


def test_many_sources_run_at_once(run):
    sources = dict.fromkeys([f"s{i}" for i in range(300)], test_uri(width=32, height=16, frames=3))
    result = run(sources, "find: {}", "tell: {}", "collect: {}")
    assert result.code == 0
    assert {name: [record["frame"] for record in records] for name, records in result.records.items()} == {
        name: [0, 1, 2] for name in sources
    }
    assert result.report["frames"] == 900
    assert result.report["events"] == {"seen": 900}
    assert result.report["detections"] == {"find": 900}


@pytest.mark.parametrize("limit", [0, 1, 4, 100])
def test_the_limit_applies_to_each_source(run, limit):
    result = run({"a": test_uri(frames=10), "b": test_uri(frames=6)}, "collect: {}", limit=limit)
    assert result.code == 0
    assert {name: len(result.records.get(name, [])) for name in "ab"} == {"a": min(10, limit), "b": min(6, limit)}
    assert {n: s["frames"] for n, s in result.report["sources"].items()} == {"a": min(10, limit), "b": min(6, limit)}


def test_dropped_frames_do_not_count_for_the_limit(run):
    sources = {"cam": f"{{uri: {test_uri(frames=0, fps=1000)}, pace: realtime}}", "file": test_uri(frames=50)}
    result = run(sources, "find: {pause_s: 0.005, run: {instances: 1}}", "collect: {}", head="batch: 1", limit=40)
    assert {name: len(records) for name, records in result.records.items()} == {"cam": 40, "file": 40}
    camera = result.report["sources"]["cam"]
    assert sum(camera["dropped"].values()) > 0
    assert (camera["out"], camera["frames"]) == (40, 40 + sum(camera["dropped"].values()))


def test_instances_do_not_change_results(run):
    sources = {"a": test_uri(frames=40), "b": test_uri(frames=25)}
    single = run(sources, "find: {run: {instances: 1}, pause_s: 0.001}", "collect: {}")
    several = run(sources, "find: {run: {instances: 3}, pause_s: 0.001}", "collect: {}")
    assert single.records == several.records
    assert (single.report["stages"]["find"]["instances"], several.report["stages"]["find"]["instances"]) == (1, 3)
    assert single.report["stages"]["find"]["frames"] == several.report["stages"]["find"]["frames"] == 65


def test_branches_see_the_same_frames_without_each_others_drawings(run):
    result = run(
        {"a": "{stage: gray, level: 128, frames_: 9}"},
        "black: {stage: paint, level: 1, from: decode}",
        "k1: {stage: keep}",
        "white: {stage: paint, level: 250, from: decode}",
        "k2: {stage: keep}",
        "k3: {stage: keep, from: decode}",
        "k4: {stage: keep, from: black}",
    )
    assert result.code == 0
    for id_, level in (("k1", 1), ("k2", 250), ("k3", 128), ("k4", 1)):
        assert entries_of(id_) == [("a", i, level, 0, None) for i in range(9)], id_


def test_drawings_are_visible_in_their_branch_only(run):
    pictures: dict[str, list[np.ndarray]] = {}
    with Collecting(Registry()):

        @stage("look", reads="pixels")
        class Look(Sink):
            """Keep the pixels."""

            def write(self, frame: Frame) -> None:
                assert frame.surface is not None
                pictures.setdefault(self.context.id, []).append(frame.surface.data.copy())

    EXTRA.append(Look)
    try:
        source = {"a": "{stage: gray, frames_: 6}"}
        run(
            source,
            "find: {}",
            "draw: {from: find}",
            "drawn: {stage: look}",
            "plain: {stage: look, from: find}",
            "first: {stage: look, from: decode}",
        )
        in_place = dict(pictures)
        pictures.clear()
        run(source, "find: {}", "draw: {}", "alone: {stage: look}")
    finally:
        EXTRA.remove(Look)
    assert all((picture == 128).all() for picture in in_place["plain"] + in_place["first"])
    assert [(picture != 128).any() for picture in in_place["drawn"]] == [i % 3 > 0 for i in range(6)]
    np.testing.assert_array_equal(pictures["alone"], in_place["drawn"])  # in place or on a copy: the same


def test_merged_branches_have_the_detections_of_each(run):
    result = run(
        {"a": test_uri(frames=6)},
        "find: {}",
        "more: {stage: find, from: decode}",
        "t1: {stage: tell, kind: one, from: find}",
        "t2: {stage: tell, kind: two, from: find}",
        "collect: {from: [t1, t2, more]}",
    )
    records = result.records["a"]
    assert [len(record["objects"]) for record in records] == [2 * (i % 3) for i in range(6)]
    assert [sorted(e["kind"] for e in record["events"]) for record in records] == [["one", "two"]] * 6
    assert result.report["detections"] == {"find": 6, "more": 6}
    assert result.report["events"] == {"one": 6, "two": 6}


# ------------------------------------------------------------------------------------------------------- the report


def test_objects_and_events_are_counted_once_with_several_outputs(run):
    for stages in (
        ["tell: {}", "k1: {stage: keep}", "k2: {stage: keep}"],  # no detector above
        ["find: {}", "k1: {stage: keep, from: find}", "tell: {from: find}", "k2: {stage: keep}"],
        ["find: {}", "tell: {}", "k1: {stage: keep}", "k2: {stage: keep, from: find}"],
        [
            "find: {}",
            "k1: {stage: keep}",
            "more: {stage: find, from: decode}",
            "tell: {from: [find, more]}",
            "k2: {stage: keep}",
        ],
    ):
        report = run({"a": test_uri(frames=6)}, *stages).report
        assert report["events"] == {"seen": 6}, stages
        assert all(n == 6 for n in report["detections"].values()), stages
        assert set(report["detections"]) == {s.split(":")[0] for s in stages if "find" in s.split("from")[0]}, stages
        assert report["frames"] == 6


def test_the_report_has_the_counts_of_the_run(run):
    result = run(
        {"a": test_uri(frames=6, fps=200), "b": test_uri(frames=4)},
        "find: {bad: 3}",
        "tell: {}",
        "keep: {}",
        head="batch: 2",
    )
    report = result.report
    assert json.loads(json.dumps(report)) == report
    assert (report["schema"], report["device"], report["exit_code"]) == ("streamkit-report/1", "cpu", 1)
    assert report["frames"] == 10  # failed ones came to the end too
    assert report["seconds"] > 0
    assert report["frames_per_s"] == pytest.approx(10 / report["seconds"], rel=0.5)
    assert report["counts"] == {"frames failed": 2}
    assert report["stages"]["find"]["frames"] == 10
    assert report["stages"]["find"]["failed"] == 2
    assert report["stages"]["tell"]["frames"] == 8
    assert report["sources"] == {"a": {"frames": 6}, "b": {"frames": 4}}
    assert report["latency"] == {}  # nothing had a due time
    assert report["detections"] == {"find": sum(i % 3 for i in (0, 1, 2, 4, 5)) + 3}
    errors = [entry for entry in entries_of() if entry[4]]
    assert sorted(entry[:2] for entry in errors) == [("a", 3), ("b", 3)]
    assert [entry[1] for entry in entries_of(source="a")] == list(range(6))  # failed frames in their place
    assert sum("find failed on" in text for text in result.logged) <= 2


def test_latency_is_measured_from_the_due_time(run):
    uri = test_uri(frames=10, fps=100)
    result = run({"a": f"{{stage: test_pattern, uri: {uri}, pace: realtime, pace_seed: 1}}"}, "keep: {pause_s: 0.002}")
    assert result.code == 0
    latency = result.report["latency"]["keep"]
    assert 1.5 < latency["p50_ms"] < 5000
    assert latency["p50_ms"] <= latency["p95_ms"] <= latency["p99_ms"]
    assert result.report["seconds"] >= 0.08


def test_a_report_during_the_first_frame_is_consistent():
    running = pipeline({"a": test_uri()}, "keep: {}")

    class Interrupted(Histogram):
        def summary(self):
            running.latency[f"end {len(running.latency)}"] = Histogram()  # as the thread of that end does
            return super().summary()

    running.latency |= {"keep": Interrupted(), "other": Interrupted()}
    assert running.report(0)["latency"].keys() == {"keep", "other"}


def test_a_message_of_a_stage_is_logged_once():
    logged = collect()
    running = pipeline({"a": test_uri()}, "keep: {}")
    for text in ("one", "two", "one"):
        running._context(text).log(text)
    assert logged == ["one", "two"]


# ------------------------------------------------------------------------------------------------------------ memory


def test_memory_is_flat_over_many_frames():
    noted: list[int] = []
    with Collecting(Registry()):

        @stage("memory")
        class Memory(Sink):
            """Note what Python holds."""

            def open(self) -> None:
                self.count = 0

            def write(self, frame: Frame) -> None:
                self.count += 1
                if self.count % 200 == 0:
                    LOG.clear()
                    noted.append(tracemalloc.get_traced_memory()[0])

    EXTRA.append(Memory)
    try:
        running = pipeline(
            {n: test_uri(width=64, height=32, frames=3000) for n in "ab"}, "find: {}", "tell: {}", "memory: {}"
        )
        tracemalloc.start()
        try:
            assert running.run() == 0
        finally:
            tracemalloc.stop()
    finally:
        EXTRA.remove(Memory)
    assert len(noted) == 30
    early = sorted(noted[3:15])[6]
    late = sorted(noted[18:])[6]
    assert late - early < 250_000  # bytes, over 3,000 frames of 3,072 each: only how many are under way differs
