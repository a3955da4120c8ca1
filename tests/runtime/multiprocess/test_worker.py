"""A worker whose parent is played by the test: what it tells, what it obeys, and what it passes on."""

import dataclasses
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cameras import until

from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, OutputError, SourceError, StageError, StreamkitError
from streamkit.media import nv_sessions
from streamkit.media.nv_sessions import SessionKey, SessionSample
from streamkit.runtime.ingest.source_status import LastFrame
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess import worker as module
from streamkit.runtime.multiprocess.children import ParentConnection
from streamkit.runtime.multiprocess.frame_ipc import RelaySink, Uplink, unpack
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.multiprocess.worker import WorkerConfig, WorkerPipeline, _graph, work
from streamkit.runtime.run import RunConfig

TEXT = """device: cpu
sources:
  a: "test://?width=32&height=32&fps=10&frames=4"
  b: "test://?width=32&height=32&fps=10&frames=4"
stages:
  all: {stage: jsonl, path: OUT/all.jsonl}
  one: {stage: jsonl, path: "OUT/{source}.jsonl", from: decode}
"""


class RecordedUplink(Uplink):
    """Counts how often it was aborted."""

    aborted = 0

    def abort(self) -> None:
        self.aborted += 1
        super().abort()


class Link(ParentConnection):
    """A parent that says what the test says."""

    uplink: RecordedUplink

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.waiting: queue.SimpleQueue[messages.Order | None] = queue.SimpleQueue()
        self.obeyed: list[messages.Order] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)
        if isinstance(message, messages.Report):
            states = message.counts.states.values()
            if states and all(state.complete for state in states):
                self.waiting.put(messages.Finish())  # as the parent does once all sources are done

    def orders(self) -> Iterator[messages.Order]:
        while (order := self.waiting.get()) is not None:
            yield order
            self.obeyed.append(order)

    def order(self, order: messages.Order) -> None:
        """Give an order, and wait until it was obeyed; several threads may give orders."""
        self.waiting.put(order)
        until(lambda: any(done is order for done in self.obeyed))

    def kinds(self, *left_out: str) -> list[str]:
        return [name for message in self.sent if (name := messages.name_of(message)) not in left_out]

    def make_sessions(self, samples: Sequence[SessionSample]) -> None:
        """Order NVDEC sessions, and wait until they are made."""
        self.order(messages.MakeSessions(samples))
        for thread in threading.enumerate():
            if thread.name == "sessions":
                thread.join(20)

    def of(self, kind: type) -> list[Any]:
        """The messages of a kind that were sent."""
        return [message for message in self.sent if isinstance(message, kind)]


@pytest.fixture
def link() -> Iterator[Link]:
    new_link = Link()
    yield new_link
    new_link.waiting.put(None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(TEXT.replace("OUT", str(tmp_path)))
    return tmp_path / "p.yaml"


def begin_and_work(link: Link, job: WorkerConfig, frames: Connection) -> None:
    """Run a job whose parent lets it begin after other orders."""
    link.waiting.put(messages.Begin())
    work(link, job, frames)


ENDLESS = RunConfig(keep_running=True, live_may_come=False)
LIMITED = dataclasses.replace(ENDLESS, limit=3)


def job_of(path: Path, **changes: Any) -> WorkerConfig:
    text = path.read_text() if path.exists() else None
    job = WorkerConfig(path, text, {}, "cpu", orders_of("a"), ("all",))
    return dataclasses.replace(job, **changes)


def orders_of(*ids: str) -> tuple[SourceOrder, ...]:
    return tuple(SourceOrder(id_, number) for number, id_ in enumerate(ids, 1))


@pytest.fixture(autouse=True)
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[SessionSample]:
    """The NVDEC sessions in use, none at first."""
    in_use: list[SessionSample] = []
    monkeypatch.setattr(nv_sessions, "samples", lambda: list(in_use))
    return in_use


@pytest.fixture
def worker_and_link(path: Path, link: Link) -> Iterator[tuple[WorkerPipeline, Link]]:
    here, there = Pipe(duplex=False)
    uplink = link.uplink = RecordedUplink(there)
    job = job_of(path, run=LIMITED)
    yield WorkerPipeline(_graph(job, uplink, None), Device("cpu"), job, link, uplink), link
    uplink.close()
    here.close()


def test_a_spare_process_tunes_its_networks_before_it_is_ready(path: Path, link: Link) -> None:
    here, there = Pipe(duplex=False)
    uplink = Uplink(there)
    job = job_of(path, sources=(), run=dataclasses.replace(ENDLESS, expected_live=7))
    running = WorkerPipeline(_graph(job, uplink, None), Device("cpu"), job, link, uplink)
    assert (dict(running.states), running._live) == ({}, 7)
    uplink.close()
    here.close()


def test_a_configuration_cannot_be_changed() -> None:
    job = job_of(Path("p.yaml"))
    assert job.part == (0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.device = "cuda"  # type: ignore[misc]
    assert not hasattr(job, "__dict__")


def test_a_job_reports_from_ready_to_its_end(path: Path, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    every: list[float] = []
    timer = module.PeriodicTimer
    monkeypatch.setattr(module, "PeriodicTimer", lambda every_s, tick: every.append(every_s) or timer(every_s, tick))
    pinned: list[Any] = []
    monkeypatch.setattr(module, "pin_process", lambda device, *part: pinned.append((str(device), *part)))
    here, there = Pipe(duplex=False)
    link.waiting.put(messages.Go())
    begin_and_work(link, job_of(path, run=LIMITED, part=(1, 2), cores=(3, 4)), there)
    assert (every, pinned) == ([0.5, 0.5], [("cpu", 1, 2, (3, 4))])
    assert link.kinds("report") == ["ready", "end"]
    assert link.sent[-1] == messages.End(0)
    report = link.sent[-2].counts
    assert (report.own["exit_code"], report.numbers, report.counts.finished) == (0, {"a": 1}, {"one": 3})
    assert [(id_, state.frames, state.out, state.complete) for id_, state in report.states.items()] == [
        ("a", 3, 3, True)
    ]
    assert list(report.counts.stages) == ["one"]
    assert list(report.own) == ["exit_code", "frames", "seconds", "frames_per_s"]
    assert (list(report.counts.latency), report.facts.sources["a"]["state"]) == ([], "ended")
    items = []
    while True:
        try:
            items += here.recv()
        except EOFError:
            break
    frames = [frame.index for sink, packed, _ in items if packed is not None for frame in unpack(packed).frames]
    assert frames == [0, 1, 2]
    assert [(sink, source) for sink, packed, source in items if packed is None] == [("all", "a"), ("", "a")]
    assert items[-1][0] == ""
    assert len((path.parent / "a.jsonl").read_text().splitlines()) == 3
    assert not (path.parent / "all.jsonl").exists()


def test_a_job_that_cannot_start_exits_with_1(path: Path, link: Link) -> None:
    here, there = Pipe(duplex=False)
    begin_and_work(link, job_of(path, device="cuda:99"), there)
    assert link.kinds() == ["fatal", "end"]
    assert link.sent[0].kind == "DeviceError"
    assert link.sent[1] == messages.End(1)
    with pytest.raises(EOFError):
        here.recv()


def test_an_aborted_job_reports_its_counts(path: Path, link: Link) -> None:
    here, there = Pipe(duplex=False)
    link.waiting.put(messages.Abort())
    begin_and_work(link, job_of(path), there)
    assert link.sent[-1] == messages.End(1)
    assert link.kinds("report")[-2:] == ["fatal", "end"]
    report = link.sent[-2].counts
    assert (report.own["exit_code"], report.own["frames"]) == (1, 0)
    assert not (path.parent / "a.jsonl").exists()
    here.close()


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"sources": orders_of("a", "z", "y")}, "y, z is missing"),
        ({"shared": ("all", "none")}, "none is missing"),
        ({"sources": orders_of("b", "z"), "shared": ("none",)}, "none, z is missing"),
    ],
)
def test_a_yaml_changed_during_startup_is_refused(path: Path, changes: dict[str, Any], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"changed during startup: {missing}; start the run again"):
        _graph(job_of(path, **changes), None)  # type: ignore[arg-type]


def test_a_graph_has_the_sources_of_the_job_and_relays_for_the_shared_sinks(path: Path) -> None:
    uplink: Any = object()
    graph = _graph(job_of(path, sources=orders_of("b")), uplink)
    assert [source.id for source in graph.sources] == ["b"]
    assert (graph.nodes["all"].type, graph.nodes["all"].options) == (RelaySink, {"uplink": uplink, "sink": "all"})
    assert graph.nodes["one"].type is not RelaySink
    assert _graph(job_of(path, shared=()), uplink).nodes["all"].type is not RelaySink


def test_the_first_stage_across_sources_becomes_a_relay_and_those_below_are_removed(path: Path) -> None:
    stages = (
        "  both: {stage: across, from: decode}\n  tags: {stage: across}\n  last: {stage: jsonl, path: OUT/l.jsonl}\n"
    )
    plugin = "from streamkit import FrameStage, stage\n@stage('across', scope='pipeline')\nclass A(FrameStage):\n"
    (path.parent / "across.py").write_text(plugin + '    """Across."""\n    def process(self, frame): pass\n')
    path.write_text("plugins: [across.py]\n" + path.read_text() + stages)
    gallery: Any = object()
    job = job_of(path, sources=orders_of("b"), shared=("all", "both", "tags", "last"))
    graph = _graph(job, object(), gallery)  # type: ignore[arg-type]
    assert {id_: node.type.__name__ for id_, node in graph.nodes.items()} == {
        "all": "RelaySink",
        "one": "JsonlSink",
        "both": "RelaySink",
        "preview": "Preview",
    }
    assert graph.nodes["preview"].inputs == ["decode"]
    assert (graph.nodes["both"].inputs, graph.nodes["both"].readers) == (["decode"], [])
    assert [source.id for source in graph.sources] == ["b"]


@pytest.mark.parametrize("error", [OutputError, StageError, SourceError])
def test_an_error_is_reported_and_aborts_frames_in_flight_unless_writable(worker_and_link: Any, error: type) -> None:
    running, link = worker_and_link
    raised = error.__new__(error)
    Exception.__init__(raised, "it broke")
    running.fail(raised)
    assert link.sent == [messages.Fatal(error.__name__, "it broke")]
    assert running.fatal is raised
    assert link.uplink.aborted == (error is SourceError)


def test_a_worker_counts_its_stages_only(worker_and_link: Any) -> None:
    running, link = worker_and_link
    assert running.limit == 3
    running.finished |= {"all": 5, "one": 6}
    assert [running.worker_report(code).own["exit_code"] for code in (None, 0, 1, 3)] == [0, 0, 1, 3]
    assert running.worker_report().counts.finished == {"one": 6}
    running.states["a"].raised = OSError("it cannot travel")
    states = running.worker_report().states
    assert (list(states), states["a"].raised, states["a"].done) == (["a"], None, False)
    running.states["a"].done = True
    assert running.worker_report().states["a"].done
    running.send_report()
    running.run_counts = raising
    running.send_report()
    assert link.kinds() == ["report"]


def raising() -> None:
    raise RuntimeError("dictionary changed size during iteration")


def test_facts_are_reported_with_alarms(path: Path, link: Link) -> None:
    path.write_text(path.read_text() + "alarms: {away: down_s > 3}\n")
    here, there = Pipe(duplex=False)
    uplink = Uplink(there)
    running = WorkerPipeline(_graph(job_of(path), uplink, None), Device("cpu"), job_of(path), link, uplink)
    facts = running.worker_report().facts
    assert facts is not None
    assert list(facts.sources) == ["a"]
    uplink.close()
    here.close()


def test_each_order_has_only_its_effect(worker_and_link: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running, link = worker_and_link
    done: list[str] = []
    ended = threading.Event()
    monkeypatch.setattr(module, "end_at_once", lambda: (done.append("now"), ended.set()))
    running.stop = lambda: done.append("stop")
    running.fail = lambda error: done.append(f"{type(error).__name__}: {error}")
    running.sources.stop = lambda: done.append("finish")
    link.order(messages.Finish())
    assert (done.pop(), running._go.is_set()) == ("finish", False)
    link.sent.clear()
    link.order(messages.Stop())
    assert (done, running._go.is_set()) == (["stop"], False)
    link.order(messages.Now())
    assert (done[1:], running._go.is_set()) == (["now"], False)
    link.order(messages.Go())
    assert (done[2:], running._go.is_set()) == ([], True)
    running._go.clear()
    link.order(messages.Abort())
    assert done[2:] == [f"{StreamkitError.__name__}: another process of the run failed"]
    assert running._go.is_set()


# ------------------------------------------------------------------------------------------------------ live changes


ENTRY = "test://?width=32&height=32&fps=10&frames=4"


def test_an_added_source_has_its_order_number_and_continues_after_the_last_frame(worker_and_link: Any) -> None:
    running, link = worker_and_link
    link.order(messages.Add(SourceOrder("c", 7, ENTRY, paused=True, after=LastFrame(40, 2.0, 1.0, (64, 48)))))
    report = running.worker_report()
    assert (list(report.states), report.numbers) == (["a", "c"], {"a": 1, "c": 7})
    assert report.states["c"].state == "paused"
    assert running.sources._readers["c"]._last == (40, 2.0, 1.0, (64, 48))
    assert report.states["c"].shape_size == (64, 48)
    link.order(messages.Pause("c", False))
    assert running.states["c"].state == "connecting"
    link.order(messages.Remove("c"))
    report = running.worker_report()
    assert (list(report.states), report.numbers) == (["a"], {"a": 1})
    assert link.kinds() == []


def test_a_report_pairs_each_state_with_its_order_number(worker_and_link: Any) -> None:
    running, _ = worker_and_link
    states = running.sources.states

    class Late(dict[str, int]):
        """Numbers during whose copy the source is replaced."""

        def __iter__(self) -> Any:
            return iter(self.keys())

        def keys(self) -> Any:
            running._numbers = {}
            running._remove_ordered("a")
            running._add_ordered(SourceOrder("a", 2, ENTRY))
            return {"a": 1}.keys()

    running._numbers = Late(a=1)
    report = running.worker_report()
    assert report.numbers == {"a": 1}  # of the old one: the parent ignores the state of the new one this time
    assert running.states["a"] is not states["a"]


def test_a_failing_order_is_refused_and_the_next_is_executed(worker_and_link: Any) -> None:
    running, link = worker_and_link
    wrong = SourceOrder("a", 2, ENTRY)
    orders = [messages.Add(wrong), messages.Remove("nobody"), messages.Set(1, "no such stage", {})]
    for order in orders:
        link.order(order)
    refused = link.of(messages.Refused)
    assert [message.order for message in refused] == orders
    assert "there is a source 'a' already" in refused[0].why
    link.order(messages.Pause("a", True))
    assert running.states["a"].state == "paused"


def test_rejected_options_are_reported_with_the_order_number(path: Path, link: Link) -> None:
    path.write_text(path.read_text().replace("stages:", "stages:\n  detect: {model: demo, min_score: 0.3}"))
    here, there = Pipe(duplex=False)
    uplink = Uplink(there)
    job = job_of(path, settings={"detect.postprocess": {"min_score": 0.4}})
    graph = _graph(job, uplink, None)
    assert graph.nodes["detect.postprocess"].options["min_score"] == 0.4
    running = WorkerPipeline(graph, Device("cpu"), job, link, uplink)
    changed: list[Any] = []
    running._runners.append(
        type(
            "Runner",
            (),
            {  # type: ignore[arg-type]
                "node": graph.nodes["detect.postprocess"],
                "change": lambda self, new, refused: changed.append((new, refused)),
            },
        )()
    )
    link.order(messages.Set(3, "detect.postprocess", {"min_score": 0.7}))
    link.order(messages.Set(4, "detect.postprocess", {"min_score": 0.8}))
    assert [new for new, _ in changed] == [{"min_score": 0.7}, {"min_score": 0.8}]
    assert graph.nodes["detect.postprocess"].options["min_score"] == 0.8
    changed[0][1]()
    assert (link.sent, graph.nodes["detect.postprocess"].options["min_score"]) == ([messages.SetRefused(3)], 0.8)
    changed[1][1]()
    assert (link.sent[1:], graph.nodes["detect.postprocess"].options["min_score"]) == ([messages.SetRefused(4)], 0.7)
    uplink.close()
    here.close()


def test_a_process_that_lost_its_gpu_ends_alone(worker_and_link: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running, link = worker_and_link

    class Ended(BaseException):
        pass

    def end() -> None:
        raise Ended

    monkeypatch.setattr(module, "end_at_once", end)
    with pytest.raises(Ended):
        running.fail(RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"))
    (lost,) = link.sent
    assert isinstance(lost, messages.Lost)
    assert lost.why.startswith("lost its GPU: RuntimeError: CUDA_ERROR_ILLEGAL_ADDRESS")
    assert running.fatal is None


def test_hanging_gpu_work_is_reported_once_the_process_runs(worker_and_link: Any) -> None:
    running, link = worker_and_link
    stuck_s = [31.0]
    running._lane_devices = [
        SimpleNamespace(stuck_s=lambda now_s: 0.0),
        SimpleNamespace(stuck_s=lambda now_s: stuck_s[0]),
    ]
    running.check_device()
    assert link.sent == []  # the network may be tuned
    running.ready = True
    running.check_device()
    hangs = messages.Hangs("has not finished work on its GPU for 30 s (watchdog) and was killed")
    assert link.sent == [hangs]
    stuck_s[0] = 30.0
    running.check_device()
    running.send_report()
    assert link.kinds() == ["hangs", "report"]


def test_a_hanging_gpu_check_is_reported(worker_and_link: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running, link = worker_and_link
    now_s = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    kinds: list[str] = []

    def blocked(_: float) -> float:
        for later_s in (130.0, 130.5):
            now_s[0] = later_s
            running.send_report()
            kinds.append(link.kinds()[-1])
        return 0.0

    running.ready = True
    running._lane_devices = [SimpleNamespace(stuck_s=blocked)]
    running.check_device()
    assert kinds == ["report", "hangs"]
    now_s[0] = 200.0
    running.send_report()
    assert link.kinds() == ["report", "report", "hangs", "report"]


def test_an_idle_process_that_lost_its_gpu_ends(worker_and_link: Any) -> None:
    running, _ = worker_and_link
    texts = iter(("cudaErrorMemoryAllocation", "cudaErrorMpsClientTerminated: the client was terminated"))

    def lost(now_s: float) -> float:
        raise RuntimeError(next(texts))

    failed: list[BaseException] = []
    running.ready = True
    running.fail = failed.append
    running._lane_devices = [SimpleNamespace(stuck_s=lost)]
    running.check_device()
    running.check_device()
    assert [str(error) for error in failed] == ["cudaErrorMpsClientTerminated: the client was terminated"]


KEY = SessionKey(0, "hevc", 1920, 1080, 420, 8, low_delay=False, parameters=b"sps")


def test_sessions_in_use_are_sent_on_change_with_each_packet_once(
    worker_and_link: Any, sessions: list[SessionSample]
) -> None:
    running, link = worker_and_link
    other = KEY._replace(codec="h264")
    running.send_report()
    sessions += [SessionSample(KEY, b"key frame", 1)]
    running.send_report()
    running.send_report()
    sessions[:] = [SessionSample(KEY, b"key frame", 2), SessionSample(other, b"another", 1)]
    running.send_report()
    sessions.clear()
    running.send_report()
    assert [message.samples for message in link.of(messages.SessionsInUse)] == [
        [SessionSample(KEY, b"key frame", 1)],
        [SessionSample(KEY, b"", 2), SessionSample(other, b"another", 1)],
        [],
    ]


def test_a_spare_process_creates_sessions_until_it_has_enough_or_gets_a_source(
    worker_and_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, link = worker_and_link
    packets: list[bytes] = []

    def make_ahead(sample: SessionSample, nvc: Any) -> bool:
        packets.append(sample.packet)
        if sample.packet == b"second" and len(packets) == 5:
            link.order(messages.Add(SourceOrder("c", 7, ENTRY)))
        return packets.count(sample.packet) <= sample.number

    monkeypatch.setattr(module, "_SESSION_EVERY_S", 0.0)
    monkeypatch.setattr(module, "nv_module", object)
    monkeypatch.setattr(nv_sessions, "make_ahead", make_ahead)
    retained: list[Any] = []
    monkeypatch.setattr(nv_sessions, "keep_only", retained.append)
    monkeypatch.setattr(nv_sessions, "idle_count", lambda: len(packets))
    wanted = [SessionSample(KEY, b"first", 2), SessionSample(KEY, b"second", 9)]
    link.make_sessions(wanted)
    assert packets == [b"first"] * 3 + [b"second"] * 2
    assert link.sent == [messages.SessionsAhead(count) for count in (1, 2, 4, 5, 5)]
    link.make_sessions(wanted)  # it has sources, which need what is idle
    assert retained == [wanted]


def test_a_later_order_for_sessions_replaces_the_earlier_one(
    worker_and_link: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, link = worker_and_link
    packets: list[bytes] = []

    def make_ahead(sample: SessionSample, nvc: Any) -> bool:
        packets.append(sample.packet)
        link.order(messages.MakeSessions([]))
        return True

    monkeypatch.setattr(module, "_SESSION_EVERY_S", 0.0)
    monkeypatch.setattr(module, "nv_module", object)
    monkeypatch.setattr(nv_sessions, "make_ahead", make_ahead)
    link.make_sessions([SessionSample(KEY, b"first", 9)])
    assert packets == [b"first"]


def test_a_full_gpu_prepares_no_sessions(
    worker_and_link: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _, link = worker_and_link
    cleared: list[bool] = []

    def make_ahead(sample: SessionSample, nvc: Any) -> bool:
        raise RuntimeError("cuvidCreateDecoder returned error 2")

    monkeypatch.setattr(module, "_SESSION_EVERY_S", 0.0)
    monkeypatch.setattr(module, "nv_module", object)
    monkeypatch.setattr(nv_sessions, "make_ahead", make_ahead)
    monkeypatch.setattr(nv_sessions, "clear", lambda: cleared.append(True))
    link.make_sessions([SessionSample(KEY, b"first", 2)])
    assert (cleared, link.sent) == ([True], [messages.SessionsAhead(0)])
    assert "the spare process keeps no decoders ready: " in caplog.text


def test_the_yaml_is_read_after_the_device_variables_are_set(
    path: Path, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plugins may use the GPU when they are loaded, and must not do so without MPS."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "")
    seen: list[str] = []

    def graph(*_: Any) -> None:
        seen.append(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
        raise ConfigError("that is enough")

    monkeypatch.setattr(module, "_graph", graph)
    here, there = Pipe(duplex=False)
    late = threading.Timer(0.3, lambda: link.waiting.put(messages.Begin({"CUDA_MPS_PIPE_DIRECTORY": "/p"})))
    late.start()
    work(link, job_of(path), there)
    late.join()
    here.close()
    assert seen == ["/p"]
    assert link.kinds() == ["fatal", "end"]


def test_a_gpu_lost_at_the_start_ends_only_that_process(
    path: Path, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> None:
        raise RuntimeError("cudaErrorMpsServerNotReady")

    def end() -> None:
        raise SystemExit(1)

    monkeypatch.setattr(module, "choose", lambda name: Device("cuda", 0))
    monkeypatch.setattr(module, "pin_process", lambda *_: None)
    monkeypatch.setattr(module, "load_compiler", lost)
    monkeypatch.setattr(module, "lost_device", lambda error: "lost its GPU" if "Mps" in str(error) else None)
    monkeypatch.setattr(module, "end_at_once", end)
    here, there = Pipe(duplex=False)
    begin_and_work(link, job_of(path), there)
    here.close()
    assert link.sent[0] == messages.Lost("lost its GPU")
