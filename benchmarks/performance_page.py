"""Writes the tables and plots of docs/performance.md from the figures in docs/figures/.

    python benchmarks/performance_page.py

`benchmarks/performance.py` measures them. The newest figure of each row counts; a row without one is left out. Needs
matplotlib: `pip install -e '.[bench]'`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "streamkit-performance/1"
_STREAM_FPS = 30
_NVDEC = {"H100": 7, "H200": 7}
"""Decoders of a card."""

_DEEPSTREAM = {"load-h264": 148, "load-hevc": 229}
"""Streams of 1080p at 30 frames/s on an H100: DeepStream 7.0, detector, tracker, two classifiers, rendering off."""
_DEEPSTREAM_DECODERS = 7

_NAMES = {
    "files-h264": "detector, 14 H.264 files",
    "files-hevc": "detector, 14 HEVC files",
    "cameras-100": "detector, H.264 cameras",
    "cameras-200": "detector, HEVC cameras",
    "load-h264": "detector, tracker, 2 classifiers, H.264",
    "load-hevc": "detector, tracker, 2 classifiers, HEVC",
    "load-serve": "the same with `serve` and a viewer, HEVC",
}
_OURS = "#2f81c7"
_LIMIT = "#8b949e"
_OTHER = "#d9822b"
_PALE = "#8ec1ea"
_LOSSY = "#8957e5"
_LIGHT = ("#ffffff", "#1f2328")  # background, text
_DARK = ("#0d1117", "#e6edf3")


@dataclass(frozen=True, slots=True)
class Figure:
    """The newest entry of a row; see docs/figures/README.md.

    Attributes:
        row: the row's name.
        entry: the entry.
        file: the file's name in docs/figures/.
        machine: the file's machine.
    """

    row: str
    entry: dict[str, Any]
    file: str
    machine: dict[str, Any]

    def value(self, name: str) -> float | None:
        """The median of a value; None if it was not measured."""
        summary = self.entry["figures"].get(name)
        return None if summary is None else float(summary["median"])

    def span(self, name: str) -> tuple[float, float]:
        """The range of a value."""
        summary = self.entry["figures"][name]
        return float(summary["low"]), float(summary["high"])

    @property
    def lossy(self) -> bool:
        """Whether a repetition dropped frames."""
        return "dropped" in self.entry["figures"] and self.span("dropped")[1] > 0

    @property
    def card(self) -> str:
        """The short name of the GPU."""
        match = re.search(r"\b[A-Z]+\d+\w*\b", str(self.machine["gpu"]))
        return match[0] if match else str(self.machine["gpu"])

    @property
    def source(self) -> str:
        """Card, date and file, as Markdown; whether the script measured it."""
        day = date.fromisoformat(self.entry["at"][:10])
        by_hand = ", transcribed" if "origin" in self.entry else ""
        return f"[{self.card}, {day.day} {day:%b %Y}](figures/{self.file}){by_hand}"

    @property
    def streams(self) -> int:
        """Streams at 30 frames/s: those of the run, or what the rate of files is worth."""
        if self.row.startswith("files"):
            return int((self.value("fps") or 0) // _STREAM_FPS)
        return int(self.entry["conditions"]["streams"])

    @property
    def name(self) -> str:
        """What runs, for a table."""
        return _NAMES[self.row]


Figures = dict[str, Figure]


def newest(folder: Path) -> Figures:
    """The newest figure of each row, from the JSON files of a folder; those of a CPU do not count."""
    figures: Figures = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("schema") != SCHEMA or not content["machine"].get("gpu"):
            continue
        for entry in content["rows"]:
            earlier = figures.get(entry["row"])
            if entry["figures"] and (earlier is None or entry["at"] >= earlier.entry["at"]):
                figures[entry["row"]] = Figure(entry["row"], entry, path.name, content["machine"])
    return figures


# ----------------------------------------------------------------------------------------------------------- the tables


def _table(head: str, rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table without the columns that are empty; the first `left` and the last are text, the others numbers."""
    titles = head.split(" | ")
    marks = ["---" if n < left or n == len(titles) - 1 else "---:" for n in range(len(titles))]
    columns = [column for column in zip(titles, marks, *rows, strict=True) if any(column[2:])]
    return "".join(f"| {' | '.join(line)} |\n" for line in zip(*columns, strict=True))


def _number(value: float | None, form: str = ",.0f", unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"


def _ranged(figure: Figure, name: str, form: str = ",.0f", unit: str = "") -> str:
    """A median, with the range if the repetitions differ."""
    if (median := figure.value(name)) is None:
        return ""
    low, high = (f"{value:{form}}" for value in figure.span(name))
    return f"{median:{form}}{unit}" + (f" ({low} to {high})" if low != high else "")


def _of(figures: Figures, names: Iterable[str]) -> Iterator[Figure]:
    return (figures[name] for name in names if name in figures)


def streams_table(figures: Figures) -> str:
    """Streams per GPU, against what its decoders alone give."""
    rows = []
    for figure in _of(figures, _NAMES):
        fps = figure.value("fps")
        limit = figure.value("decoders_fps")
        fps = fps if fps is not None else figure.streams * _STREAM_FPS
        share = figure.streams * _STREAM_FPS if not figure.row.startswith("files") else fps
        rates = _ranged(figure, "fps") or _number(fps)
        of = f"{share / limit:.2f}" if limit else ""
        theirs = _number(_DEEPSTREAM.get(figure.row)) if _comparable(figure) else ""
        rows.append(
            (figure.name, str(figure.streams), _dropped(figure), rates, _number(limit), of, theirs, figure.source)
        )
    text = _table("pipeline | streams | dropped | frames/s | decoders alone | of them | DeepStream | measured", rows)
    return text + _lines(_single_file(figures), _two_gpus(figures))


def _comparable(figure: Figure) -> bool:
    return _NVDEC.get(figure.card) == _DEEPSTREAM_DECODERS


def _lines(*lines: str) -> str:
    sentences = [line for line in lines if line]
    return "\n" + "".join(f"- {line}\n" for line in sentences) if sentences else ""


def _single_file(figures: Figures) -> str:
    if (figure := figures.get("one-file")) is None:
        return ""
    return (
        f"One HEVC file: {_ranged(figure, 'one_decoder_fps')} frames/s on one decoder, {_ranged(figure, 'auto_fps')} "
        f"with `decoders: auto` ({figure.source})."
    )


def _two_gpus(figures: Figures) -> str:
    if (figure := figures.get("two-gpus")) is None:
        return ""
    return (
        f"Two GPUs with 28 HEVC files: {_ranged(figure, 'two_gpus_fps')} frames/s; one with 14: "
        f"{_ranged(figure, 'one_gpu_fps')} ({figure.source})."
    )


_LIVE = ("cameras-100", "cameras-200", "load-h264", "load-hevc", "load-serve")


def latency_table(figures: Figures) -> str:
    """Latency and drops of cameras."""
    rows = []
    for figure in _of(figures, _LIVE):
        times = [_ranged(figure, f"p{q}_ms", ".0f", " ms") for q in (50, 95, 99)]
        first = _ranged(figure, "all_sources_s", ".0f", " s")
        rows.append((figure.name, str(figure.streams), _dropped(figure), *times, first, figure.source))
    text = _table("pipeline | streams | dropped | p50 | p95 | p99 | all running after | measured", rows)
    return text + _lines(_first_record(figures), _kill(figures))


def _dropped(figure: Figure) -> str:
    """Drops in each repetition."""
    summary = figure.entry["figures"].get("dropped")
    if summary is None:
        return ""
    return (
        "0" + f" in each of {len(summary['values'])} runs" * (len(summary["values"]) > 1)
        if not summary["high"]
        else ("; ".join(f"{dropped:,.0f}" for dropped in summary["values"]))
    )


def _first_record(figures: Figures) -> str:
    if (figure := figures.get("first-record")) is None:
        return ""
    cold = _ranged(figure, "cold_first_record_s", ".1f", " s")
    warm = _ranged(figure, "first_record_s", ".1f", " s")
    parts = [f"{warm} with compiled kernels on disk"] * bool(warm) + [f"{cold} without"] * bool(cold)
    return f"First record of 14 files after {', '.join(parts)} ({figure.source})."


def _kill(figures: Figures) -> str:
    if (figure := figures.get("kill")) is None:
        return ""
    return (
        f"One of three processes killed, {figure.streams} HEVC cameras: its sources give frames again after "
        f"{_ranged(figure, 'back_s', '.1f', ' s')}; the others' p95 is "
        f"{_ranged(figure, 'p95_others_ms', '.0f', ' ms')} meanwhile ({figure.source})."
    )


def cost_rows(figures: Figures) -> list[tuple[str, str, float, int, float | None, str]]:
    """What runs, on what, frames/s, streams at 30 frames/s, CPU cores in use, and where the figure is from."""
    rows = []
    if (plain := figures.get("plain-loop")) is not None:
        many = plain.entry["conditions"]["streams"]
        for name, title in (("cpu", "CPU"), ("gpu", f"{plain.card}, batch 1")):
            for kind, how in (("one", "1 thread"), ("many", f"{many} threads")):
                if (fps := plain.value(f"{name}_{kind}_fps")) is not None:
                    text = f"plain loop, {how}"
                    cores = plain.value(f"{name}_{kind}_cores")
                    rows.append((text, f"{title}, H.264", fps, int(fps // _STREAM_FPS), cores, plain.source))
    for figure in _of(figures, ("files-h264", "files-hevc", "load-h264", "load-hevc")):
        fps = figure.value("fps")
        what = "detector" if figure.row.startswith("files") else "detector, tracker, 2 classifiers"
        codec = "HEVC" if figure.row.endswith("hevc") else "H.264"
        rows.append(
            (
                f"streamkit, {what}",
                f"{figure.card}, {codec}",
                fps or figure.streams * _STREAM_FPS,
                figure.streams,
                figure.value("cores_used"),
                figure.source,
            )
        )
        if figure.row in _DEEPSTREAM and _comparable(figure):
            streams = _DEEPSTREAM[figure.row]
            rows.append(
                (f"DeepStream 7.0, {what}", f"H100, {codec}", streams * _STREAM_FPS, streams, None, "second-hand")
            )
    return rows


def cost_table(figures: Figures) -> str:
    """Cost: frames per second of one GPU, and of a CPU core, of a plain loop, streamkit, and DeepStream."""
    rows = [
        (
            what,
            where,
            _number(fps),
            str(streams),
            _number(cores, ".1f"),
            _number(fps / cores if cores else None),
            source,
        )
        for what, where, fps, streams, cores, source in cost_rows(figures)
    ]
    text = _table("what runs | on | frames/s | streams of 30 | CPU cores used | frames/s per core | measured", rows, 2)
    return text + _lines(_emitters(figures))


def _emitters(figures: Figures) -> str:
    if (figure := figures.get("emitters")) is None:
        return ""
    return (
        f"Records to MQTT: {_ranged(figure, 'with_fps')} frames/s with, {_ranged(figure, 'without_fps')} without, 14 "
        f"HEVC files ({figure.source})."
    )


TABLES: dict[str, Callable[[Figures], str]] = {"streams": streams_table, "latency": latency_table, "cost": cost_table}


def page(text: str, figures: Figures) -> str:
    """The page with fresh tables between its markers; see `with_tables`."""
    return with_tables(text, {name: table(figures) for name, table in TABLES.items()})


def with_tables(text: str, tables: Mapping[str, str]) -> str:
    """A page with these tables between its markers, by name.

    Raises:
        ValueError: a marker is missing.
    """
    for name, table in tables.items():
        begin = f"<!-- {name} -->\n"
        end = f"<!-- /{name} -->\n"
        before, opening, rest = text.partition(begin)
        _, closing, after = rest.partition(end)
        if not (opening and closing):
            raise ValueError(f"the page has no {begin.strip()} and {end.strip()}")
        text = f"{before}{begin}{table}{end}{after}"
    return text


# ------------------------------------------------------------------------------------------------------------ the plots


def _canvas(rows: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "streamkit", "font.size": 10})
    figure, axes = pyplot.subplots(figsize=(8, 0.9 + 0.42 * rows), facecolor=_LIGHT[0], layout="constrained")
    axes.set_facecolor("none")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_LIMIT)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", color=_LIMIT)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure, axes


def _svg(figure: Any) -> str:
    """The figure as SVG that follows the reader's light or dark scheme; its text stays text."""
    from matplotlib import pyplot

    out = StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = re.sub(r"[ \t]+$", "", out.getvalue(), flags=re.MULTILINE)
    style = (
        f"<style>text{{fill:{_LIGHT[1]}!important}}@media (prefers-color-scheme:dark){{"
        f"text{{fill:{_DARK[1]}!important}}#patch_1 path{{fill:{_DARK[0]}!important}}}}</style>"
    )
    return re.sub(r"(<svg [^>]*>)", lambda tag: f"{tag[1]}\n {style}", text, count=1)


def _bars(
    axes: Any,
    at: Sequence[float],
    widths: Sequence[float],
    color: str,
    label: str,
    height: float = 0.62,
    place: str = "edge",
) -> None:
    """Bars with their values; each has an id, by which a test finds it."""
    bars = axes.barh(at, widths, height=height, color=color, label=label)
    for n, bar in enumerate(bars):
        bar.set_gid(f"bar-{label.replace(' ', '-')}-{n}")
    axes.bar_label(bars, [f"{width:,.0f}" for width in widths], label_type=place, padding=3 * (place == "edge"))


def streams_plot(figures: Figures) -> str:
    """Streams per GPU as bars, with what the decoders alone give, and DeepStream's published figures."""
    rows = list(_of(figures, _NAMES))
    figure, axes = _canvas(len(rows))
    for label, color, lossy in (("streamkit", _OURS, False), ("streamkit with drops", _LOSSY, True)):
        points = [(n, row.streams) for n, row in enumerate(rows) if row.lossy is lossy]
        if points:
            _bars(axes, *zip(*points, strict=True), color, label, place="center")
    limits = [(n, limit / _STREAM_FPS) for n, row in enumerate(rows) if (limit := row.value("decoders_fps"))]
    theirs = [(n, _DEEPSTREAM[row.row]) for n, row in enumerate(rows) if row.row in _DEEPSTREAM and _comparable(row)]
    for points, color, label in ((limits, _LIMIT, "decoders alone"), (theirs, _OTHER, "DeepStream 7.0, H100")):
        if points:
            where, values = zip(*points, strict=True)
            gid = f"mark-{label.split()[0]}"
            axes.scatter(values, where, marker="|", s=420, linewidths=3, color=color, label=label, zorder=3, gid=gid)
    axes.set_yticks(range(len(rows)), [f"{row.name.replace('`', '')}  ({row.card})" for row in rows])
    axes.set_xlabel("streams of 1080p at 30 frames/s on one GPU")
    axes.margins(x=0.12)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return _svg(figure)


def latency_plot(figures: Figures) -> str:
    """p50, p95 and p99 of cameras."""
    rows = [row for row in _of(figures, _LIVE) if row.value("p95_ms") is not None]
    figure, axes = _canvas(len(rows) * 2)
    for n, (quantile, color) in enumerate((("p50", _PALE), ("p95", _OURS), ("p99", _LIMIT))):
        points = [
            (at, latency_ms) for at, row in enumerate(rows) if (latency_ms := row.value(f"{quantile}_ms")) is not None
        ]
        if points:
            places, values = zip(*points, strict=True)
            _bars(axes, [place + 0.27 * (n - 1) for place in places], values, color, quantile, 0.25)
    titles = [f"{row.name.replace('`', '')}\n{row.streams} streams  ({row.card})" for row in rows]
    axes.set_yticks(range(len(rows)), titles)
    axes.set_xlabel("milliseconds from when a frame is due until its record is written")
    axes.margins(x=0.12)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return _svg(figure)


def cost_plot(figures: Figures) -> str:
    """Frames per second of one machine: the plain loop, streamkit, DeepStream."""
    rows = cost_rows(figures)
    figure, axes = _canvas(len(rows))
    for label, color in (("plain loop", _LIMIT), ("streamkit", _OURS), ("DeepStream", _OTHER)):
        points = [(at, row[2]) for at, row in enumerate(rows) if row[0].startswith(label)]
        if points:
            at, values = zip(*points, strict=True)
            _bars(axes, at, values, color, label)
    axes.set_yticks(range(len(rows)), [f"{what}  ({where})" for what, where, *_ in rows])
    axes.set_xlabel("frames/s of 1080p video, one GPU")
    axes.margins(x=0.2)
    return _svg(figure)


DRAWN: dict[str, Callable[[Figures], str]] = {"streams": streams_plot, "latency": latency_plot, "cost": cost_plot}


def main() -> int:
    """Write the page and its plots."""
    figures = newest(ROOT / "docs" / "figures")
    place = ROOT / "docs" / "performance.md"
    plots = ROOT / "docs" / "performance"
    place.write_text(page(place.read_text(encoding="utf-8"), figures), encoding="utf-8")
    plots.mkdir(exist_ok=True)
    for name, drawn in DRAWN.items():
        (plots / f"{name}.svg").write_text(drawn(figures), encoding="utf-8")
    print(f"docs/performance.md has {len(figures)} rows: {', '.join(figures)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
