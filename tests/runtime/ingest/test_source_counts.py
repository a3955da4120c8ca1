"""The numbers of a source, each declared once."""

from dataclasses import fields
from pathlib import Path

import pytest

from streamkit.core.counters import Counters
from streamkit.runtime.ingest.source_counts import EXPORTED, SourceCounts
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState


def counts_from(first: int, kind: type[SourceCounts] = SourceCounts) -> SourceCounts:
    """Counts of which each declared number differs."""
    counts = kind()
    for number, declared in enumerate(fields(SourceCounts), first):
        present = getattr(counts, declared.name)
        if isinstance(present, Counters):
            present.add(f"{declared.name}: cause", number)
        else:
            setattr(counts, declared.name, number)
    return counts


def numbers(counts: SourceCounts) -> list[int]:
    values = [getattr(counts, declared.name) for declared in fields(SourceCounts)]
    return [value.values.total() if isinstance(value, Counters) else value for value in values]


@pytest.mark.parametrize(
    "add", [SourceCounts.merge, SourceState.add_earlier, RemovedSources.add, RemovedSources.add_totals]
)
def test_every_declared_count_is_summed(add):
    whole = counts_from(1, RemovedSources if "Removed" in add.__qualname__ else SourceState)
    before = numbers(whole)
    more = counts_from(100, RemovedSources if add is RemovedSources.add_totals else SourceState)
    add(whole, more)
    assert numbers(whole) == [first + second for first, second in zip(before, numbers(more), strict=True)]
    assert len(set(numbers(whole))) == len(before)


def test_counts_of_another_source_are_copied_not_shared():
    whole, source = SourceCounts(), counts_from(1)
    whole.merge(source)
    whole.drops.add("frames dropped: too old")
    assert "frames dropped: too old" not in source.drops.values


def test_a_shown_count_is_in_the_report_unless_zero():
    assert SourceState(reconnects=3).report() == {"frames": 0, "reconnects": 3}
    assert SourceState().report() == {"frames": 0}


def test_a_count_with_a_separate_field_is_not_repeated():
    state = SourceState(reconnects=2)
    state.counters.add("reconnects", 2)
    state.counters.add("reconnects: lost", 2)
    state.counters.add("frames concealed", 5)
    assert state.further(()) == {"reconnects": 2, "frames concealed": 5}
    assert state.further({"reconnects"}) == {"frames concealed": 5}


def test_every_exported_count_is_documented_with_its_labels():
    page = Path("docs/serving-metrics.md").read_text()
    for number in EXPORTED:
        labels = "source, cause" if number.by_cause else "source"
        assert f"`streamkit_{number.metric}_total{{{labels}}}`" in page
