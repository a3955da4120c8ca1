"""The figures of docs/performance.md: whole pipelines against their limits, cameras, and what users would write.

    python benchmarks/performance.py --data DATA [--rows files-hevc,cameras-200] [--out docs/figures/DATE-CARD.json]
    python benchmarks/performance_page.py        # then writes the tables and plots of docs/performance.md

Each row is measured several times (`--repeat` replaces its number) within its own time limit, and appended to the JSON
file as it comes. Values that are compared are measured in turn: decoders alone, then the whole, again and again.
docs/figures/README.md describes the file. With `--device cpu`, small versions of the rows run, which shows that they
work; their figures are not for the page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from benchmarks.killed_process import KillSpec
from streamkit.bench import limits, trial
from streamkit.bench.child import results
from streamkit.bench.decoders import decoders_fps, variables
from streamkit.bench.inputs import clip_of, lengthen, network, scratch_folder
from streamkit.core.child_environment import child_environment
from streamkit.core.errors import StreamkitError
from streamkit.doctor.machine import driver
from streamkit.runtime.execution.device import gpu_trouble

_ROOT = Path(__file__).resolve().parents[1]
SCHEMA = "streamkit-performance/1"
_OF_DECODERS = 0.95  # of the decoders' rate, which a load's streams take
_LEFT_OUT = "left out: "
_CLASSIFIER = """
{task: classify, family: logits, file: FILE, labels: names.txt, score: 0, precision: PRECISION,
input: {size: [224, 224], resize: stretch, scale: 1/255, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
"""

Figures = dict[str, float | None]
"""The values of one repetition, by name; the name ends in the unit."""


class LeftOut(Exception):
    """A row cannot be measured on this machine; the text says why."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the rows are.

    Attributes:
        files: number of files at full speed.
        many, few: numbers of cameras.
        pace: frames per second of a camera.
        clip_frames: minimum length of the file that each source reads.
        seconds, live_s: duration of a measurement, of files and of cameras.
        warmup_s: how long cameras run before their measurement.
        plain_frames: frames of each stream of the plain loop.
        plain_streams: streams of the plain loop at the same time.
    """

    files: int
    many: int
    few: int
    pace: float
    clip_frames: int
    seconds: float
    live_s: float
    warmup_s: float
    plain_frames: int
    plain_streams: int


GPU = Size(14, 200, 100, 30, 6000, 4.0, 10.0, 2.0, 450, 8)
CPU = Size(2, 4, 3, 2, 300, 1.0, 2.0, 0.5, 12, 2)


@dataclass
class Bench:
    """What rows measure with: the machine's device, clips and networks.

    Attributes:
        data: the folder with videos/ and models/.
        folder: where clips, cards and records are written.
        device: `cpu`, `cuda` or `cuda:N`.
        size: how large the rows are.
        max_streams: the largest number of streams of a load; None for no limit.
        until_s: when the current row must end, in monotonic seconds.
        conditions: of the current row, for its figures.
        raw: what the current row's runs returned.
    """

    data: Path
    folder: Path
    device: str
    size: Size
    max_streams: int | None = None
    until_s: float = math.inf
    conditions: dict[str, Any] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    def clip(self, codec: str) -> Path:
        """The clip of a codec, repeated without encoding, in memory if there is room."""
        video = clip_of(codec, self.data, self.folder)
        out = self.folder / f"{codec}{video.suffix}"
        if not out.exists():
            lengthen(video, out, self.size.clip_frames)
        return out

    def detector(self, dtype: str = "") -> str:
        """The card of YOLOX-nano, in f16 on a GPU."""
        chosen: Any = dtype or ("f16" if self.on_gpu else "f32")
        card = self.folder / f"yolox-nano-{chosen}.yaml"
        return str(card) if card.exists() else network(None, self.data, self.folder, chosen)[0]

    def classifier(self) -> str:
        """The card of MobileNetV2, in f16 on a GPU."""
        card = self.folder / "mobilenetv2.yaml"
        models = self.data / "models"
        if not card.exists():
            file = (models / "mobilenetv2_imagenet_deq.onnx").resolve()
            names = (models / "imagenet_labels.txt").read_text(encoding="utf-8").splitlines()
            (self.folder / "names.txt").write_text("\n".join(names[-1000:]) + "\n", encoding="utf-8")
            text = _CLASSIFIER.replace("FILE", str(file)).replace("PRECISION", "f16" if self.on_gpu else "f32")
            card.write_text(text, encoding="utf-8")
        return str(card)

    def stages(self, *, load: bool = False) -> dict[str, Any]:
        """`detect` and `jsonl`; with `load`, a tracker and two classifiers of tracks between them."""
        classify = {"stage": "classify", "of": "detect", "model": self.classifier(), "every": "1s"} if load else {}
        return {
            "detect": {"model": self.detector()},
            **({"track": {}, "kind": classify, "make": classify} if load else {}),
            "jsonl": {"path": str(self.folder / "out" / "{source}.jsonl")},
        }

    def pipeline(self, codec: str, sources: int, stages: dict[str, Any], **source: Any) -> Path:
        """Write a pipeline of endless sources that read the codec's clip."""
        options = {"uri": str(self.clip(codec)), "loop": True, **source}
        plan = {"sources": {f"s{number:03d}": options for number in range(sources)}, "stages": stages}
        path = self.folder / "pipeline.yaml"
        path.write_text(json.dumps(plan), encoding="utf-8")
        return path

    def decoders(self, codec: str, seconds: float | None = None) -> Figures:
        """The decoders alone, in one process and in three."""
        frame_rates: Figures = {}
        for processes in (1, 3):
            fps = decoders_fps(
                self.clip(codec), self.device, self.size.files, seconds or self.size.seconds, processes, self.until_s
            )
            frame_rates[f"decoders_{processes}_fps"] = round(fps, 1)
        frame_rates["decoders_fps"] = max(fps for fps in frame_rates.values() if fps is not None)
        return frame_rates

    def network_fps(self, codec: str) -> float:
        """The network alone at batch 64, on one CUDA stream."""
        path = self.pipeline(codec, 1, self.stages())
        clips = {codec: str(self.clip(codec))}
        spec = limits.LimitsSpec(clips, [], [64 if self.on_gpu else 4], str(path), {}, self.device, self.size.seconds)
        for event in results(spec, self.until_s):
            if "error" in event:
                raise StreamkitError(event["error"])
            if event.get("what") == "infer":
                return float(event["fps"])
        raise StreamkitError("the network alone was not measured")

    def run(self, path: Path, *, live: bool = False, device: str = "", seconds: float | None = None) -> dict[str, Any]:
        """Run a pipeline in its own processes, and check that every frame has its record.

        Raises:
            StreamkitError: it failed.
            TimeoutError: the row's time is up.
        """
        size = self.size
        spec = trial.TrialSpec(str(path), device=device or self.device, seconds=seconds or size.seconds)
        if live:
            spec.seconds = seconds or size.live_s
            spec.warmup_s = size.warmup_s
            spec.start_s = 120.0
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        trial_report = trial.measure(spec, self.until_s)
        written = sum(file.read_bytes().count(b"\n") for file in (self.folder / "out").glob("*.jsonl"))
        self.raw.append(asdict(trial_report))
        if not trial_report.error and written != trial_report.frames_in_all:
            trial_report.error = f"{written} records of {trial_report.frames_in_all} frames were written"
        if trial_report.error:
            raise StreamkitError(trial_report.error)
        return asdict(trial_report)


def _live(report: dict[str, Any]) -> Figures:
    """What a run of cameras gives."""
    in_all = sum(n for name, n in report["counts"].items() if "dropped" in name)
    values = {name: report[name] for name in ("fps", "dropped", "processes", "cores_used", "gpu", "decoder")}
    first = {"first_record_s": report["start_s"], "all_sources_s": report["all_sources_s"]}
    return {**values, "dropped_in_all": in_all, **first, **report["latency"]}


# ------------------------------------------------------------------------------------------------------------- the rows
# Each is a generator that yields the values of one repetition after the other.


def files(bench: Bench, codec: str) -> Iterator[Figures]:
    """Files at full speed, against the decoders alone and the network alone."""
    bench.conditions |= {"streams": bench.size.files, "codec": codec}
    infer: float | None = None
    while True:
        alone = bench.decoders(codec)
        infer = infer or bench.network_fps(codec)
        report = bench.run(bench.pipeline(codec, bench.size.files, bench.stages()))
        limit = min(alone["decoders_fps"] or 0, infer)
        values = {name: report[name] for name in ("fps", "processes", "cores_used", "gpu", "decoder")}
        yield {**alone, "network_fps": infer, **values, "of_limit": round(report["fps"] / limit, 4)}


def cameras(bench: Bench, codec: str, streams: int) -> Iterator[Figures]:
    """Cameras at 30 frames per second."""
    bench.conditions |= {"streams": streams, "codec": codec, "pace_fps": bench.size.pace}
    while True:
        path = bench.pipeline(codec, streams, bench.stages(), pace=bench.size.pace)
        yield _live(bench.run(path, live=True))


def _streams(bench: Bench, alone: Figures) -> int:
    """How many streams of a load the decoders serve."""
    rate = _OF_DECODERS * (alone["decoders_fps"] or 0)
    fit = max(1, math.floor(rate / bench.size.pace))
    streams = min(fit, bench.max_streams or fit, fit if bench.on_gpu else bench.size.many)
    bench.conditions |= {"streams": streams, "pace_fps": bench.size.pace}
    return streams


def load(bench: Bench, codec: str) -> Iterator[Figures]:
    """A detector, a tracker and two classifiers, with as many streams as the decoders serve."""
    bench.conditions |= {"codec": codec}
    alone = bench.decoders(codec)
    streams = _streams(bench, alone)
    while True:
        path = bench.pipeline(codec, streams, bench.stages(load=True), pace=bench.size.pace)
        yield {**alone, **_live(bench.run(path, live=True))}
        alone = bench.decoders(codec)


def load_serve(bench: Bench) -> Iterator[Figures]:
    """The same through `run.py serve`, with a client that watches a source and asks for the page each second."""
    bench.conditions |= {"codec": "hevc"}
    streams = _streams(bench, bench.decoders("hevc"))
    while True:
        path = bench.pipeline("hevc", streams, bench.stages(load=True), pace=bench.size.pace)
        yield _served(bench, path, streams)


def single_file(bench: Bench) -> Iterator[Figures]:
    """One HEVC file on one decoder, and on all."""
    bench.conditions |= {"streams": 1, "codec": "hevc"}
    while True:
        single_fps, all_fps = (
            bench.run(bench.pipeline("hevc", 1, bench.stages(), decoders=decoders))["fps"] for decoders in (1, "auto")
        )
        yield {"one_decoder_fps": single_fps, "auto_fps": all_fps, "times": round(all_fps / single_fps, 3)}


def first_record(bench: Bench) -> Iterator[Figures]:
    """The command with files, until a file has the first record; the first start finds no compiled kernels."""
    bench.conditions |= {"streams": bench.size.files, "codec": "hevc"}
    path = bench.pipeline("hevc", bench.size.files, bench.stages())
    with tempfile.TemporaryDirectory() as empty, variables({"CUPY_CACHE_DIR": empty, "CUDA_CACHE_PATH": empty}):
        yield {"cold_first_record_s": _first_record_s(bench, path)}
        while True:
            yield {"first_record_s": _first_record_s(bench, path)}


def _first_record_s(bench: Bench, path: Path) -> float:
    """Seconds from the start of the command `run` until a file has a record."""
    out = bench.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, str(_ROOT / "run.py"), str(path), "--device", bench.device]
    began_s = time.monotonic()
    with (bench.folder / "run.log").open("w") as log:
        process = subprocess.Popen(command, cwd=_ROOT, stdout=log, stderr=log)
    try:
        while not any(file.stat().st_size for file in out.glob("*")):
            if process.poll() is not None:
                raise StreamkitError(f"it ended without a record: {(bench.folder / 'run.log').read_text()[-2000:]}")
            if time.monotonic() > bench.until_s:
                raise TimeoutError
            time.sleep(0.005)
        return round(time.monotonic() - began_s, 3)
    finally:
        _end(process)


def two_gpus(bench: Bench) -> Iterator[Figures]:
    """Twice the files on two devices, against one."""
    if not bench.on_gpu or (why := gpu_trouble(1)) is not None:
        raise LeftOut("it needs two GPUs" + (f": {why}" if bench.on_gpu else ""))
    bench.conditions |= {"streams": 2 * bench.size.files, "codec": "hevc"}
    while True:
        single = bench.run(bench.pipeline("hevc", bench.size.files, bench.stages()), device="cuda:0")
        double = bench.run(bench.pipeline("hevc", 2 * bench.size.files, bench.stages()), device="cuda:0,cuda:1")
        times = round(double["fps"] / single["fps"], 3)
        yield {"one_gpu_fps": single["fps"], "two_gpus_fps": double["fps"], "times": times}


def emitters(bench: Bench) -> Iterator[Figures]:
    """Files without and with records to MQTT."""
    from support.brokers.mqtt import MosquittoServer

    if (why := MosquittoServer.missing()) is not None:
        raise LeftOut(why)
    bench.conditions |= {"streams": bench.size.files, "codec": "hevc", "emitter": "mqtt, batch 50"}
    bench.folder.chmod(0o755)  # it reads its files as a user of its own
    broker = MosquittoServer(bench.folder / "broker")
    broker.start()
    try:
        while True:
            without = bench.run(bench.pipeline("hevc", bench.size.files, bench.stages()))["fps"]
            options = {"url": f"mqtt://streamkit:{_quoted(broker.password)}@127.0.0.1:{broker.port}", "batch": 50}
            spool = {"path": str(bench.folder / "spool")}
            stages = {**bench.stages(), "mqtt": {"from": "detect", **options, "spool": spool}}
            with_fps = bench.run(bench.pipeline("hevc", bench.size.files, stages))["fps"]
            yield {"without_fps": without, "with_fps": with_fps, "ratio": round(with_fps / without, 4)}
    finally:
        broker.kill()


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def plain_loop(bench: Bench) -> Iterator[Figures]:
    """The loop that people write: OpenCV and ONNX Runtime, one frame at a time, one stream and several."""
    size = bench.size
    bench.conditions |= {"codec": "h264", "streams": size.plain_streams, "network": "YOLOX-nano f32, batch 1"}
    card = bench.detector("f32")
    out = bench.folder / "plain.jsonl"
    providers = {"cpu": "CPUExecutionProvider"} | ({"gpu": "CUDAExecutionProvider"} if bench.on_gpu else {})
    while True:
        figures: Figures = {}
        for (name, provider), streams in ((entry, n) for entry in providers.items() for n in (1, size.plain_streams)):
            words = [bench.clip("h264"), card, out, size.plain_frames, streams, provider]
            done = _output([sys.executable, "-m", "streamkit.bench.plain_loop", *map(str, words)], bench.until_s)
            report = json.loads(done.splitlines()[-1])
            bench.raw.append({"provider": provider, "streams": streams, **report})
            kind = f"{name}_{'one' if streams == 1 else 'many'}"
            figures[f"{kind}_fps"] = round(report["frames"] / report["seconds"], 1)
            figures[f"{kind}_cores"] = round(report["cpu_s"] / report["seconds"], 2)
        yield figures


def kill(bench: Bench) -> Iterator[Figures]:
    """Cameras over three processes, one of which is killed."""
    size = bench.size
    bench.conditions |= {"streams": size.many, "codec": "hevc", "pace_fps": size.pace, "processes": 3}
    while True:
        path = bench.pipeline("hevc", size.many, bench.stages(), pace=size.pace)
        report = list(results(KillSpec(str(path), bench.device, 3, size.warmup_s, 120.0), bench.until_s))[-1]
        shutil.rmtree(bench.folder / "out", ignore_errors=True)
        bench.raw.append(report)
        if "error" in report:
            raise StreamkitError(report["error"])
        yield {name: figure for name, figure in report.items() if name != "counts"}


def _output(command: list[str], until_s: float) -> str:
    try:
        done = subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            cwd=_ROOT,
            env=child_environment(),
            timeout=max(0.1, until_s - time.monotonic()) if until_s < math.inf else None,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(str(error)) from error
    except subprocess.CalledProcessError as error:
        raise StreamkitError(f"{command[2]} ended with {error.returncode}: {error.stderr[-2000:]}") from error
    return done.stdout


# ----------------------------------------------------------------------------------------------------------- the server


def _served(bench: Bench, path: Path, streams: int) -> Figures:
    """Serve a pipeline, measure it by its own API while a client uses it, and end it."""
    from support.broker_servers import free_port

    port = free_port()
    token = secrets.token_urlsafe(18)
    client = _Client(f"http://127.0.0.1:{port}", token)
    command = [sys.executable, str(_ROOT / "run.py"), "serve", str(path), "--device", bench.device, "--port", str(port)]
    began_s = time.monotonic()
    with (bench.folder / "serve.log").open("w") as log:
        server = subprocess.Popen(
            command, cwd=_ROOT, env={**child_environment(), "STREAMKIT_TOKEN": token}, stdout=log, stderr=log
        )
    try:
        _wait_until(bench, server, lambda: client.running() == streams, "all sources")
        started_s = time.monotonic() - began_s
        with client.viewing("s000"):
            time.sleep(2 * bench.size.warmup_s)
            before = client.metrics()
            requests = 0
            took_s = []
            measuring_since_s = time.monotonic()
            while (now_s := time.monotonic()) < measuring_since_s + bench.size.live_s:
                for request_path in (
                    "/",
                    "/api/v1/status",
                    "/api/v1/sources",
                    "/api/v1/events",
                    "/metrics",
                    "/api/v1/sources/s001/snapshot.jpg",
                ):
                    request_start_s = time.monotonic()
                    client.get(request_path if streams > 1 else request_path.replace("s001", "s000"))
                    took_s.append(time.monotonic() - request_start_s)
                    requests += 1
                time.sleep(max(0.0, now_s + 1 - time.monotonic()))
            after = client.metrics()
            seconds = time.monotonic() - measuring_since_s
            received = client.received
    finally:
        _end(server)
        shutil.rmtree(bench.folder / "out", ignore_errors=True)
    figures: Figures = {
        "fps": round((after.frames - before.frames) / seconds, 1),
        "dropped": after.dropped - before.dropped,
        "dropped_in_all": after.dropped,
        "all_sources_s": round(started_s, 2),
        "requests": requests,
        "slowest_request_s": round(max(took_s), 3),
        "live_bytes": received,
        **after.latency_since(before),
    }
    bench.raw.append(dict(figures))
    return figures


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command as Ctrl-C does, and kill it if it takes too long."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


@dataclass(slots=True)
class _Metrics:
    """Counters of `/metrics`: frames, drops, and the latency histogram as cumulative counts by bound in seconds."""

    frames: float
    dropped: float
    buckets: dict[float, float]

    def latency_since(self, before: _Metrics) -> Figures:
        """p50 and p95 in milliseconds, each the bound of a bucket interpolated linearly, as Prometheus does."""
        counts = {bound: n - before.buckets.get(bound, 0) for bound, n in sorted(self.buckets.items())}
        return {f"p{q}_ms": _quantile(counts, q / 100) for q in (50, 95)}


def _quantile(counts: dict[float, float], share: float) -> float | None:
    """A quantile in milliseconds of cumulative counts by bound in seconds; None without counts."""
    total = max(counts.values(), default=0)
    low = 0.0
    under = 0.0
    if not total:
        return None
    for bound, n in counts.items():
        if n >= share * total:
            if math.isinf(bound):
                return round(low * 1e3, 1)
            return round((low + (bound - low) * (share * total - under) / (n - under)) * 1e3, 1)
        low = bound
        under = n
    return None


class _Client:
    """A client of `run.py serve` that is signed in."""

    def __init__(self, base: str, token: str) -> None:
        self._base = base
        self._headers = {"Authorization": f"Bearer {token}"}
        self.received = 0

    def get(self, path: str) -> bytes:
        """The body of a request; empty if the server has none now."""
        try:
            with self._open(path) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            return b""

    def _open(self, path: str) -> Any:
        return urllib.request.urlopen(urllib.request.Request(self._base + path, headers=self._headers), timeout=20)

    def running(self) -> int:
        """Number of sources that run and have given frames; -1 while the server does not answer."""
        try:
            sources = json.loads(self.get("/api/v1/sources"))
        except (OSError, ValueError):
            return -1
        return sum(source["state"] == "running" and source["frames"] > 0 for source in sources)

    @contextmanager
    def viewing(self, source: str) -> Iterator[None]:
        """Read the live stream of a source while the block runs."""
        answer = self._open(f"/api/v1/sources/{source}/live.mjpg")
        over = False

        def read() -> None:
            with suppress(OSError, ValueError, AttributeError):  # it is closed meanwhile
                while not over and (chunk := answer.read1(1 << 16)):
                    self.received += len(chunk)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(read)
            try:
                yield
            finally:
                over = True
                time.sleep(0.3)

    def metrics(self) -> _Metrics:
        text = self.get("/metrics").decode()
        frames = dropped = 0.0
        buckets: dict[float, float] = defaultdict(float)
        for name, labels, value in re.findall(r"^(\w+)\{?(.*?)\}? ([0-9.e+]+)$", text, re.MULTILINE):
            if name == "streamkit_frames_total":
                frames += float(value)
            elif name == "streamkit_frames_dropped_total":
                dropped += float(value)
            elif name == "streamkit_source_latency_seconds_bucket":
                (bound,) = re.findall(r'le="([^"]+)"', labels)
                buckets[float(bound)] += float(value)
        return _Metrics(frames, dropped, dict(buckets))


def _wait_until(bench: Bench, server: subprocess.Popen[bytes], done: Callable[[], bool], what: str) -> None:
    while not done():
        if server.poll() is not None:
            raise StreamkitError(f"serve ended: {(bench.folder / 'serve.log').read_text()[-2000:]}")
        if time.monotonic() > bench.until_s:
            raise TimeoutError(f"{what} did not run in time")
        time.sleep(0.2)


# --------------------------------------------------------------------------------------------------- measuring the rows


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its repetitions, how many by default, and its time limit in seconds."""

    work: Callable[[Bench], Iterator[Figures]]
    repeat: int
    limit_s: float


ROWS: dict[str, Row] = {
    "files-h264": Row(lambda bench: files(bench, "h264"), 3, 240),
    "files-hevc": Row(lambda bench: files(bench, "hevc"), 3, 240),
    "cameras-200": Row(lambda bench: cameras(bench, "hevc", bench.size.many), 1, 150),
    "cameras-100": Row(lambda bench: cameras(bench, "h264", bench.size.few), 5, 240),
    "load-h264": Row(lambda bench: load(bench, "h264"), 1, 180),
    "load-hevc": Row(lambda bench: load(bench, "hevc"), 1, 180),
    "load-serve": Row(load_serve, 1, 180),
    "one-file": Row(single_file, 3, 180),
    "first-record": Row(first_record, 3, 120),
    "two-gpus": Row(two_gpus, 2, 180),
    "emitters": Row(emitters, 3, 240),
    "plain-loop": Row(plain_loop, 3, 200),
    "kill": Row(kill, 1, 180),
}
"""The rows, in the order in which they are measured."""


def measure(name: str, bench: Bench, repeat: int | None, max_s: float) -> dict[str, Any]:
    """Measure a row.

    Args:
        name: of `ROWS`.
        bench: what to measure with.
        repeat: number of repetitions; None for the row's own.
        max_s: time limit in seconds, if lower than the row's own.

    Returns:
        Its entry in the file, with what was measured before an error or the time limit.
    """
    row = ROWS[name]
    row_start_s = time.monotonic()
    wanted = repeat or row.repeat
    limit_s = min(row.limit_s, max_s)
    bench.until_s = row_start_s + limit_s
    bench.conditions = {"device": bench.device}
    bench.raw = []
    values: dict[str, list[float]] = defaultdict(list)
    error = None
    longest_s = 0.0
    done = 0
    work = row.work(bench)
    try:
        while done < wanted:
            started_s = time.monotonic()
            if started_s + longest_s > bench.until_s:
                error = f"{done} of {wanted} repetitions fitted into {limit_s:g} s"
                break
            for key, value in next(work).items():
                if value is not None:
                    values[key].append(value)
            done = done + 1
            longest_s = max(longest_s, time.monotonic() - started_s)
    except TimeoutError:
        error = f"stopped at its time limit of {limit_s:g} s, after {done} of {wanted} repetitions"
    except LeftOut as why:
        error = f"{_LEFT_OUT}{why}"
    except (StreamkitError, RuntimeError, OSError) as failure:
        error = f"after {done} of {wanted} repetitions: {failure}"
    finally:
        work.close()  # type: ignore[attr-defined]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    took_s = round(time.monotonic() - row_start_s, 1)
    return {
        "row": name,
        "at": now,
        "took_s": took_s,
        "repetitions": done,
        "error": error,
        "conditions": bench.conditions,
        "figures": {key: summary(samples) for key, samples in values.items()},
        "raw": bench.raw,
    }


def summary(values: list[float]) -> dict[str, Any]:
    """Median and range of a value's repetitions, and all of them."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "values": values}


def machine(bench: Bench) -> dict[str, Any]:
    """Describe the machine: names of GPU and CPU, number of cores, driver, versions."""
    clip = {"h264": str(bench.clip("h264"))}
    path = bench.pipeline("h264", 1, bench.stages())
    report = list(results(limits.LimitsSpec(clip, [], [], str(path), {}, bench.device, 0.1)))[-1]
    if "error" in report:
        raise StreamkitError(report["error"])
    description = report["machine"]
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        description["cpu"] = next(iter(re.findall(r"model name\s*:\s*(.+)", text)), None)
    gpu = description["gpu"] or {}
    description |= {"gpu": gpu.get("name"), "cuda": gpu.get("runtime"), "driver": driver()[1] if bench.on_gpu else None}
    return dict(description)


def card(description: dict[str, Any]) -> str:
    """The short name of a machine's GPU, for a file: `h100`; `cpu` without one."""
    match = re.search(r"\b[a-z]+\d+\w*\b", str(description["gpu"]).lower())
    return match[0] if match else "cpu"


def opened(out: Path, description: dict[str, Any]) -> dict[str, Any]:
    """The file's content so far, to which rows are appended.

    Raises:
        SystemExit: it is of another kind, or of another machine.
    """
    if not out.exists():
        return {"schema": SCHEMA, "date": datetime.now(UTC).date().isoformat(), "machine": description, "rows": []}
    content: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    same = ("gpu", "cpu", "cores", "driver")
    if content.get("schema") != SCHEMA or any(content["machine"].get(key) != description.get(key) for key in same):
        raise SystemExit(f"{out} has figures of another machine or of another kind; name another file with --out")
    return content


def as_line(entry: dict[str, Any]) -> str:
    """A measured row as a line of text."""
    parts = [
        f"{key} {figure['median']:g}"
        + (f" ({figure['low']:g} to {figure['high']:g})" if len(figure["values"]) > 1 else "")
        for key, figure in entry["figures"].items()
    ]
    error = f"; {entry['error']}" if entry["error"] else ""
    return f"{entry['row']}, {entry['repetitions']} times in {entry['took_s']:g} s: {', '.join(parts)}{error}"


def _compile_modules() -> None:
    """Compile what processes import, as pip does when it installs: with `PYTHONDONTWRITEBYTECODE`, each would do it."""
    code = "from streamkit.runtime.multiprocess.worker import preload; import streamkit.cli.run; preload()"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", code], cwd=_ROOT, env=variables, check=True)


def main() -> int:
    """Measure the rows, and append each to the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("STREAMKIT_TEST_DATA"), help="videos/ and models/")
    parser.add_argument("--out", type=Path, help="a JSON file, to which rows are appended; in docs/figures/ by default")
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}; by default all")
    parser.add_argument("--repeat", type=int, help="repetitions of each row")
    parser.add_argument("--streams", type=int, help="the largest number of streams of a load")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument(
        "--max", type=float, default=math.inf, help="seconds in all; rows that do not fit are cut short"
    )
    arguments = parser.parse_args()
    names = arguments.rows.split(",")
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"no rows {', '.join(unknown)}; there are {', '.join(ROWS)}")
    if arguments.data is None or not arguments.data.is_dir():
        parser.error("--data must be a folder with videos/ and models/")
    _compile_modules()
    until_s = time.monotonic() + arguments.max
    failed = False
    with scratch_folder() as folder:
        size = CPU if arguments.device == "cpu" else GPU
        bench = Bench(arguments.data.resolve(), Path(folder), arguments.device, size, arguments.streams)
        description = machine(bench)
        out = arguments.out or _ROOT / "docs" / "figures" / f"{datetime.now(UTC).date()}-{card(description)}.json"
        content = opened(out, description)
        for name in names:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                print(f"{name}: skipped, the time is up", flush=True)
                continue
            entry = measure(name, bench, arguments.repeat, left_s)
            content["rows"].append(entry)
            part = out.with_suffix(".part")
            part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            part.replace(out)
            failed |= bool(entry["error"]) and not entry["figures"] and not entry["error"].startswith(_LEFT_OUT)
            print(as_line(entry), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
