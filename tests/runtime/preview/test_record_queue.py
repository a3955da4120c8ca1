"""Results of frames on their way to viewers: what records are made of, when, and what they keep meanwhile."""

import gc
import json
import weakref

import numpy as np
import pytest
from support.messages import collect

from streamkit.core.data import Batch, Shown
from streamkit.core.detections import Detections
from streamkit.core.lazy_column import LazyColumn
from streamkit.runtime.preview import record_queue as module
from streamkit.runtime.preview.live import LiveHub
from streamkit.runtime.preview.record_queue import RecordQueue
from streamkit.testing.kit import detections, frames


@pytest.fixture(name="hub")
def hub_fixture():
    hub = LiveHub()
    hub.request_records("gate")
    return hub


def batch_of(*sources, tables=None):
    batch_frames = [frame for source in sources for frame in frames(1, source=source)]
    table = detections([[10 + row, 10, 60, 60] for row in range(len(batch_frames))], labels=("car",))
    table = table.with_columns(batch_row=np.arange(len(batch_frames), dtype=np.int32))
    return Batch(batch_frames, tables={"detect": table} if tables is None else tables)


def records_of(queue):
    return [(source, json.loads(text)) for source, text in queue.make_records()[0]]


def test_records_are_made_in_batches_for_sources_with_listeners(hub):
    queue = RecordQueue(hub)
    queue.put(batch_of("yard", "gate"))
    batch = batch_of("gate")
    batch.frames[0].shown = {"line": Shown(((0, 0), (1, 1)), text="door"), "trail": Shown(((0, 0),), class_id=2)}
    batch.frames[0]._state.skipped_detectors = frozenset({"faces"})
    batch.frames[0].emit("crossed")
    batch.failed = batch_of("gate").frames
    batch.failed[0].error = "broken"
    queue.put(batch)
    first, second, failed = [record for _, record in records_of(queue)]
    assert first["objects"][0]["box"] == [11, 10, 60, 60]
    assert (first["shapes"], first["skipped"], first["events"]) == ([], [], [])
    assert [shape["name"] for shape in second["shapes"]] == ["line"]
    assert second["skipped"] == ["faces"]
    assert second["events"][0]["kind"] == "crossed"
    assert (failed["error"], failed["objects"]) == ("broken", [])
    assert records_of(queue) == []


def test_pixels_and_device_memory_are_released(hub):
    queue = RecordQueue(hub)
    batch = batch_of("gate")
    image = np.zeros(8, np.uint8)
    read = []

    class Surface:
        pass

    surface = batch.frames[0].surface = Surface()
    surface_ref = weakref.ref(surface)

    def make(rows, device=image):
        read.append(len(device))
        return np.array([{"size": [1, 1], "counts": "1"}] * len(rows))

    column = LazyColumn(make, np.arange(1), object)
    batch.tables["detect"] = batch.table("detect").with_columns(mask=column, embedding=np.zeros((1, 4), np.float32))
    queue.put(batch)
    assert read == [8], "the column is read where the stage runs"
    del batch, surface, column
    gc.collect()
    assert surface_ref() is None
    ((_, record),) = records_of(queue)
    assert record["objects"][0]["mask"] == {"size": [1, 1], "counts": "1"}
    assert "embedding" not in record["objects"][0]


def test_nothing_is_queued_without_listeners_and_a_full_queue_drops_the_oldest(hub, monkeypatch):
    monkeypatch.setattr(module, "_MAX_FRAMES", 3)
    queue = RecordQueue(hub)
    queue.put(batch_of("yard"))
    assert queue.make_records() == ([], 0)
    for number in range(5):
        batch = batch_of("gate")
        batch.frames[0].index = number
        queue.put(batch)
    with hub.listen(None) as listener:
        hub.gather_records()
        assert [json.loads(record)["frame"] for record in listener.take()[1]] == [2, 3, 4]
        assert hub.lost == 2
    queue.put(batch_of("gate"))
    monkeypatch.setattr(hub, "heard", frozenset)
    queue.put(batch_of("gate"))
    assert queue.make_records() == ([], 0)


def test_a_failing_record_is_logged_once_and_does_not_affect_others(hub, monkeypatch):
    queue = RecordQueue(hub)
    logged = collect()

    def fails():
        raise ValueError("the copy failed")

    queue.put(batch_of("gate", tables={"detect": fails}))
    assert logged == ["preview: a record for the web page cannot be made: ValueError: the copy failed"]
    assert queue.make_records() == ([], 1)
    table = Detections.empty()
    monkeypatch.setattr(module, "batch_lines", lambda batch: 1 / 0)
    queue.put(batch_of("gate", tables={"detect": table}))
    assert queue.make_records() == ([], 1)
    monkeypatch.undo()
    queue.put(batch_of("gate", tables={"detect": table}))
    assert len(records_of(queue)) == 1
