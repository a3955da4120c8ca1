"""docs/performance.md and its plots have the newest figures of docs/figures/, and nothing else."""

import copy
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from support.packages import require

from benchmarks.performance_page import DRAWN, SCHEMA, TABLES, Figure, newest, page

require("matplotlib")

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def figures():
    return newest(ROOT / "docs" / "figures")


def seen(svg: str) -> tuple[list[str], list[list[float]]]:
    """What a plot shows: its texts, and places of its bars and marks. The rest differs by matplotlib's version."""
    root = ElementTree.fromstring(svg)
    texts = ["".join(label.itertext()) for label in root.iter(f"{SVG}text")]
    bars = [
        group.find(f"{SVG}path").get("d") for group in root.iter(f"{SVG}g") if group.get("id", "").startswith("bar-")
    ]
    marks = [
        [float(use.get("x")) for use in group.iter(f"{SVG}use")]
        for group in root.iter(f"{SVG}g")
        if group.get("id", "").startswith("mark-")
    ]
    return texts, [[float(n) for n in re.findall(r"[\d.]+", path)] for path in bars] + marks


def test_the_page_has_the_newest_figures(figures):
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert text == page(text, figures), "run python benchmarks/performance_page.py"


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_plots_show_the_newest_figures(figures, name):
    texts, bars = seen((ROOT / "docs" / "performance" / f"{name}.svg").read_text(encoding="utf-8"))
    fresh_texts, fresh_bars = seen(DRAWN[name](figures))
    assert texts == fresh_texts, "run python benchmarks/performance_page.py"
    assert len(bars) > 3
    assert len(bars) == len(fresh_bars)
    for bar, fresh in zip(bars, fresh_bars, strict=True):
        assert bar == pytest.approx(fresh, abs=3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_plot_is_the_same_each_time(figures):
    assert DRAWN["cost"](figures) == DRAWN["cost"](figures)


def entry(row, at, **values):
    figures = {name: {"median": n, "low": n, "high": n, "values": [n]} for name, n in values.items()}
    conditions = {"device": "cuda", "streams": 200, "codec": "hevc"}
    return {"row": row, "at": at, "error": None, "conditions": conditions, "figures": figures}


def written(folder, name, *rows, gpu="NVIDIA H100 80GB HBM3", schema=SCHEMA):
    content = {"schema": schema, "machine": {"gpu": gpu}, "rows": rows}
    (folder / name).write_text(json.dumps(content))


def test_the_newest_entry_with_figures_of_a_gpu_counts(tmp_path):
    written(tmp_path, "c.json", entry("cameras-200", "2026-11-20", dropped=1))
    written(
        tmp_path, "b.json", entry("cameras-200", "2026-11-21T09:30:00+00:00", dropped=2), entry("kill", "2026-11-21")
    )
    written(tmp_path, "d.json", entry("cameras-200", "2026-11-22", dropped=3), gpu=None)
    written(tmp_path, "e.json", entry("cameras-200", "2026-11-23", dropped=4), schema="another")
    newest_figures = newest(tmp_path)
    assert list(newest_figures) == ["cameras-200"]
    assert newest_figures["cameras-200"].value("dropped") == 2
    assert (newest_figures["cameras-200"].card, newest_figures["cameras-200"].file) == ("H100", "b.json")
    assert newest_figures["cameras-200"].source == "[H100, 21 Nov 2026](figures/b.json)"


def test_missing_measurements_are_omitted():
    for table in TABLES.values():
        assert table({}).count("\n") <= 2
    figure = Figure(
        "load-hevc", entry("load-hevc", "2026-11-21", dropped=7, p95_ms=61.4), "a.json", {"gpu": "NVIDIA H200"}
    )
    text = TABLES["latency"]({"load-hevc": figure})
    assert text.splitlines() == [
        "| pipeline | streams | dropped | p95 | measured |",
        "| --- | ---: | ---: | ---: | --- |",
        "| detector, tracker, 2 classifiers, HEVC | 200 | 7 | 61 ms | [H200, 21 Nov 2026](figures/a.json) |",
    ]


def test_a_median_is_shown_with_its_range(figures):
    row = copy.deepcopy(entry("files-h264", "2026-11-21", fps=4900, decoders_fps=5000))
    row["figures"]["fps"] = {"median": 4900, "low": 4800, "high": 4950, "values": [4800, 4900, 4950]}
    figure = Figure("files-h264", row, "a.json", {"gpu": "NVIDIA H100"})
    assert "| 163 | 4,900 (4,800 to 4,950) | 5,000 | 0.98 |" in TABLES["streams"]({"files-h264": figure})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_drops_are_shown_for_every_repetition():
    def texts(values):
        row = entry("cameras-100", "2026-11-21", p95_ms=31)
        row["figures"]["dropped"] = {"median": 0, "low": 0, "high": max(values), "values": values}
        figures = {"cameras-100": Figure("cameras-100", row, "a.json", {"gpu": "NVIDIA H200"})}
        return TABLES["latency"](figures), TABLES["streams"](figures), seen(DRAWN["streams"](figures))[0]

    for table in texts([0, 0, 7])[:2]:
        assert "| 200 | 0; 0; 7 |" in table
    assert "streamkit with drops" in texts([0, 0, 7])[2]
    for table in texts([0, 0, 0])[:2]:
        assert "| 200 | 0 in each of 3 runs |" in table
    assert "streamkit with drops" not in texts([0, 0, 0])[2]


def test_a_page_without_markers_is_refused(figures):
    with pytest.raises(ValueError, match="has no <!-- streams -->"):
        page("# Nothing\n", figures)
