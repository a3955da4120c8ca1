"""The numbers of a source, each declared once."""

import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest

from streamkit.core.counters import Counters
from streamkit.runtime.ingest.source_counts import SourceCounts
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
    "add", [SourceCounts.merge, SourceState.merge_previous, RemovedSources.add, RemovedSources.add_totals]
)
def test_every_declared_count_is_summed(add):
    whole = counts_from(1, RemovedSources if "Removed" in add.__qualname__ else SourceState)
    before = numbers(whole)
    more = counts_from(100, RemovedSources if add is RemovedSources.add_totals else SourceState)
    add(whole, more)
    assert numbers(whole) == [first + second for first, second in zip(before, numbers(more), strict=True)]
    assert len(set(numbers(whole))) == len(before)


def test_counts_of_another_source_are_copied_not_shared():
    whole = SourceCounts()
    source = counts_from(1)
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


WITH_ANOTHER_NUMBER = """
import importlib.util, json, sys

NAME = "streamkit.runtime.ingest.source_counts"
spec = importlib.util.find_spec(NAME)
code = open(spec.origin).read()
place = next(line for line in code.splitlines() if line.strip().startswith("reconnects: int"))
number = '    stalls: int = field(default=0, metadata=_number("Stalls of a source", metric="stalls", shown=True))'
module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
exec(compile(code.replace(place, place + chr(10) + number), spec.origin, "exec"), vars(module))

from reference_pages.metrics_table import page
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.run_stats import SourceStats
from streamkit.serve.api_models import SourceView

state = SourceState(stalls=3)
state.merge(SourceState(stalls=4))
counts = [state.further(kind.__slots__) for kind in (SourceView, SourceStats)]
print(json.dumps([state.report(), *counts, [line for line in "".join(page()).splitlines() if "stalls" in line]]))
"""


def test_another_declared_number_is_in_report_api_stats_metrics_and_docs(root):
    ran = subprocess.run(
        [sys.executable, "-c", WITH_ANOTHER_NUMBER],
        cwd=root,
        env={**os.environ, "PYTHONPATH": "docs"},
        capture_output=True,
        text=True,
        check=True,
    )
    report, api, stats, docs = json.loads(ran.stdout.splitlines()[-1])
    assert report["stalls"] == api["stalls"] == stats["stalls"] == 7
    assert docs == [
        "| `streamkit_stalls_total` | counter | `source` | Stalls of a source |",
        "| Stalls of a source | `streamkit_stalls_total` | `stalls` |",
    ]
