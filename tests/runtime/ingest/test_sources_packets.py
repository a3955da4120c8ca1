import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.media.ring import PacketRing
from streamkit.runtime.ingest.sources import ring_for

TEXT = """
sources: {a: x.mp4, b: "test://"}
stages:
  jsonl: {path: x.jsonl}
"""
RECORD = """
  one: {stage: record, buffer: 1MB}
  two: {stage: record, buffer: 3MB, path: "two/{source}/{time}.mp4"}
"""


@pytest.mark.parametrize(("stages", "source", "there"), [(RECORD, 0, True), (RECORD, 1, False), ("", 0, False)])
def test_sources_with_a_reader_of_packets_get_a_ring(stages, source, there):
    graph = build(read_text(TEXT + stages))
    assert isinstance(ring_for(graph, graph.sources[source]), PacketRing) is there


def test_each_opening_has_a_new_ring_of_the_largest_buffer():
    graph = build(read_text(TEXT + RECORD))
    first = ring_for(graph, graph.sources[0])
    second = ring_for(graph, graph.sources[0])
    assert first is not second
    assert first._limit == 3_000_000
    assert set(first._needed) == {"one", "two"}
