"""`streamkit.run`: frames in a Python loop."""

import gc
import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

import av
import numpy as np
import pytest

import streamkit
from streamkit.core.errors import ConfigError
from streamkit.core.records import record
from streamkit.media.surfaces import shared_pool

STREET = "samples/street.mp4"
REFUSED = "http://127.0.0.1:9/a.mp4"
"""An address at which nothing listens."""


def run_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()} & {"run", "batcher"}


def test_frames_have_the_records_that_the_yaml_writes(tmp_path):
    (tmp_path / "pipeline.yaml").write_text(f"""
device: cpu
sources: {{a: {STREET}, b: {{uri: {STREET}, start: 1s}}}}
stages:
  detect: {{model: demo}}
  track: {{}}
  door: {{stage: line_counter, line: [[0, 240], [640, 240]]}}
  jsonl: {{path: "{tmp_path}/{{source}}.jsonl"}}
""")
    command = [sys.executable, "run.py", str(tmp_path / "pipeline.yaml"), "--limit", "20"]
    subprocess.run(command, check=True, capture_output=True)
    written = {id_: (tmp_path / f"{id_}.jsonl").read_text() for id_ in "ab"}
    rows = {"a": [], "b": []}
    for frame in streamkit.run(tmp_path / "pipeline.yaml", limit=20):
        rows[frame.source].append(json.loads(json.dumps(record(frame))))
    for id_, text in written.items():
        assert rows[id_] == [json.loads(line) for line in text.splitlines()]
        assert (tmp_path / f"{id_}.jsonl").read_text() == text  # the sinks of the YAML write as without the loop
        assert len(rows[id_]) == 20
        assert any(row["objects"] for row in rows[id_])


def test_branches_deliver_each_frame_once_with_all_events():
    box = {"stage": "zone", "polygon": [[0, 0], [640, 0], [640, 360], [0, 360]]}
    stages = {"track": {}, "a": {**box, "from": "track"}, "b": {**box, "from": "track"}}
    frames = list(streamkit.run(STREET, model="demo", stages=stages, device="cpu", limit=8))
    assert [frame.index for frame in frames] == list(range(8))
    assert {event.stage for frame in frames for event in frame.events} == {"a", "b"}


def test_several_sources_keep_their_frames_in_order():
    seen = {}
    for frame in streamkit.run([STREET, STREET], model="demo", device="cpu", limit=5):
        assert frame.surface is not None
        seen.setdefault(frame.source, []).append(frame.index)
    assert seen == {"source_1": list(range(5)), "source_2": list(range(5))}


def test_leaving_the_loop_ends_the_run():
    for _ in streamkit.run(STREET, model="demo", device="cpu"):
        assert run_threads()
        break
    assert run_threads() == set()


def test_a_closed_stream_has_no_more_frames():
    with streamkit.run(STREET, model="demo", device="cpu") as frames:
        next(frames)
    assert list(frames) == []
    assert run_threads() == set()


def test_a_misspelled_option_is_refused_before_the_run():
    with pytest.raises(ConfigError, match="did you mean 'min_score'"):
        streamkit.run({"sources": {"a": STREET}, "stages": {"detect": {"model": "demo", "min_scor": 0.4}}})


def test_sources_need_a_detector():
    with pytest.raises(ConfigError, match="need a detector"):
        streamkit.run(STREET)


def test_a_pipeline_takes_no_model():
    with pytest.raises(ConfigError, match="names its own"):
        streamkit.run("pipeline.yaml", model="demo")


def test_a_run_whose_sources_all_fail_raises_the_error():
    frames = streamkit.run({"gate": REFUSED}, model="demo", device="cpu")
    with pytest.raises(
        streamkit.SourceError, match=r"source gate failed: http://127.0.0.1:9/a.mp4: connection refused"
    ) as raised:
        list(frames)
    assert raised.value.cause == "refused"
    assert isinstance(raised.value.__cause__, streamkit.SourceError)
    assert list(frames.errors) == ["gate"]
    assert list(frames) == []


def test_every_missing_file_is_refused_before_the_run(tmp_path):
    (tmp_path / "empty").mkdir()
    sources = {"gone": "nowhere.mp4", "street": STREET, "folder": str(tmp_path / "empty"), "some": "no*.mp4"}
    with pytest.raises(ConfigError) as raised:
        streamkit.run(sources, model="demo", device="cpu")
    assert [problem.text for problem in raised.value.problems] == [
        f"source folder: {tmp_path}/empty: the folder contains no videos or images"
        "; put some there, or name another folder",
        "source gone: there is no file nowhere.mp4",
        "source some: no*.mp4: the pattern contains no videos or images; check its folder and its suffix",
    ]


def test_a_missing_file_is_refused_with_the_other_problems():
    with pytest.raises(ConfigError) as raised:
        streamkit.run("nowhere.mp4", model="demo", stages={"trak": {}})
    assert [problem.text for problem in raised.value.problems] == [
        "source source: there is no file nowhere.mp4",
        "unknown stage 'trak'; did you mean 'track'?",
    ]


def test_a_source_that_waits_for_its_file_gives_only_a_warning(tmp_path, caplog):
    path = tmp_path / "later.mp4"
    frames = streamkit.run({"later": {"uri": str(path), "reconnect": True}}, model="demo", device="cpu", limit=2)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        f"pipeline: source later: there is no file {path}"
    ]
    path.write_bytes(Path(STREET).read_bytes())
    assert [frame.index for frame in frames] == [0, 1]


def test_missing_networks_and_files_are_refused_together(tmp_path):
    (tmp_path / "mine.yaml").write_text(Path("models/color.yaml").read_text().replace("color.onnx", "gone.onnx"))
    stages = {"detect": {"model": "demo"}, "color": {"stage": "classify", "model": f"{tmp_path}/mine.yaml"}}
    with pytest.raises(ConfigError) as raised:
        streamkit.run("nowhere.mp4", stages=stages)
    assert len(raised.value.problems) == 2
    assert "there is no file nowhere.mp4" in str(raised.value)
    assert "gone.onnx" in str(raised.value)


def test_a_failed_source_does_not_end_the_others():
    frames = streamkit.run([STREET, REFUSED], model="demo", device="cpu", limit=3)
    assert [frame.source for frame in frames] == ["source_1"] * 3
    assert {id_: error.cause for id_, error in frames.errors.items()} == {"source_2": "refused"}
    assert frames.report["sources"]["source_2"]["error"].startswith(f"{REFUSED}: connection refused")
    assert frames.stats.sources["source_2"].state == "failed"


def test_live_frames_that_a_slow_loop_cannot_take_are_dropped_and_counted(tmp_path):
    camera = {"uri": "test://?width=32&height=32&fps=200&frames=0", "pace": "realtime"}
    stages = {"csv": {"path": str(tmp_path / "objects.csv")}, "detect": {"model": "demo", "from": "decode"}}
    with streamkit.run({"cam": camera, "file": STREET}, stages=stages, device="cpu", limit=150) as frames:
        seen = []
        for frame in frames:
            seen.append((frame.source, frame.index))
            if frame.source == "cam":
                time.sleep(0.05)
    cam = [index for source, index in seen if source == "cam"]
    dropped = frames.stats.sources["cam"].dropped
    assert dropped["loop_busy"] == frames.report["counts"]["frames dropped: loop busy"] > 0
    assert len(cam) + dropped["loop_busy"] == 150  # frames that are dropped before the stages do not count
    assert cam == sorted(cam)
    assert [index for source, index in seen if source == "file"] == list(range(150))


def test_texts_of_a_mapping_contain_environment_variables(monkeypatch):
    monkeypatch.setenv("STREET", STREET)
    monkeypatch.setenv("EVERY", "2")
    frames = streamkit.run(
        {"a": {"uri": "${STREET}", "every": "${EVERY}"}}, model="${MODEL:-demo}", device="cpu", limit=3
    )
    assert [frame.index for frame in frames] == [0, 2, 4]
    monkeypatch.delenv("STREET")
    with pytest.raises(ConfigError, match="STREET is not set"):
        streamkit.run({"a": "${STREET}"}, model="demo")


def leave_by_break():
    for _ in streamkit.run(STREET, model="demo", device="cpu"):
        break


def leave_by_exception():
    with suppress(KeyError):
        for frame in streamkit.run(STREET, model="demo", device="cpu"):
            raise KeyError(frame)


def leave_by_del():
    frames = streamkit.run(STREET, model="demo", device="cpu")
    next(frames)
    del frames


def leave_by_cycle():
    frames = streamkit.run(STREET, model="demo", device="cpu")
    next(frames)
    cycle = [frames]
    cycle.append(cycle)
    del frames, cycle
    gc.collect()


def leave_by_pipeline():
    with streamkit.Pipeline(STREET, model="demo", device="cpu") as pipeline:
        for _ in pipeline:
            break


@pytest.fixture(scope="module")
def used_libraries():
    """Use the libraries once: at their first use, they start threads of their own and open files."""
    leave_by_break()


def settled_threads():
    """The number of threads once it no longer changes: the thread that stops the sources ends on its own."""
    counts = [threading.active_count()]
    while len(counts) < 4 or len(set(counts[-4:])) > 1:
        time.sleep(0.1)
        counts.append(threading.active_count())
    return counts[-1]


@pytest.mark.parametrize(
    "leave",
    [leave_by_break, leave_by_exception, leave_by_del, leave_by_cycle, leave_by_pipeline],
    ids=lambda f: f.__name__,
)
def test_leaving_early_ends_all_threads_and_closes_all_files(leave, used_libraries):
    gc.collect()
    before = settled_threads()
    files = len(list(Path("/proc/self/fd").iterdir()))
    leave()
    gc.collect()
    until_s = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < until_s:
        time.sleep(0.01)
    assert threading.active_count() == before
    assert len(list(Path("/proc/self/fd").iterdir())) == files


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests may ignore it
import streamkit

pipeline = {
    "plugins": [sys.argv[2]], "sources": {"s": "samples/street.mp4"}, "batch": 1,
    "stages": {"slow": {}, "video": {"path": sys.argv[1]}},
}
for frame in streamkit.run(pipeline, device="cpu"):
    print(frame.index, flush=True)
    if sys.argv[3] == "raise":
        raise ArithmeticError
"""
SLOW = """
import time
from streamkit import stage

@stage("slow", reads="pixels")
def slow(frame):
    time.sleep(0.1)
"""


def start_child(tmp_path, how):
    (tmp_path / "slow.py").write_text(SLOW)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "out.mp4"), str(tmp_path / "slow.py"), how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "0\n"
    return process


def frames_of(path):
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def test_files_are_complete_after_an_exception_that_ends_the_program(tmp_path):
    process = start_child(tmp_path, "raise")
    assert "ArithmeticError" in process.communicate(timeout=60)[1]
    assert frames_of(tmp_path / "out.mp4") > 0


@pytest.mark.quiet
def test_a_second_ctrl_c_drops_frames_in_flight_and_still_closes_files(tmp_path):
    process = start_child(tmp_path, "read")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # frames in flight are written
    process.send_signal(signal.SIGINT)
    start_s = time.monotonic()
    assert "KeyboardInterrupt" in process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT
    assert time.monotonic() - start_s < 3
    assert frames_of(tmp_path / "out.mp4") > 0


def test_frames_kept_by_the_loop_never_stop_the_decoder():
    frames_in_use = deque(maxlen=60)  # more than all queues hold
    for frame in streamkit.run([STREET, STREET], model="demo", device="cpu", limit=50):
        frames_in_use.append(frame)
    assert len(frames_in_use) == 60


def test_a_run_without_memory_for_kept_frames_ends_with_the_reason(monkeypatch):
    pool = shared_pool(streamkit.Device("cpu"))
    monkeypatch.setattr(pool, "limit", pool.allocated + 40 * 640 * 540)
    with pytest.raises(streamkit.SourceError, match="in a Python loop, keep fewer frames"):
        list(streamkit.run(STREET, model="demo", device="cpu"))


def test_a_push_source_needs_a_pipeline():
    with pytest.raises(ConfigError, match=r"PushSource needs streamkit\.Pipeline"):
        streamkit.run({"cam": streamkit.PushSource()}, model="demo")


@pytest.mark.parametrize(
    ("sources", "options", "text"),
    [
        (STREET, {"stages": ["track"]}, "stages must be a mapping"),
        (STREET, {"limit": 0}, "limit must be a number of frames, at least 1, got 0"),
        (STREET, {"limit": "5"}, "limit must be a number of frames, at least 1, got '5'"),
        (STREET, {"limit": True}, "limit must be a number of frames, at least 1, got True"),
        (STREET, {"set": ["a=1"]}, "set must be a mapping from names to values"),
        (
            STREET,
            {"stages": {"detect": {"min_score": 0.5}}},
            'put the model into it, {"detect": {"model": "demo", ...}}',
        ),
        ("", {}, "source source needs a URI or a file"),
        ({"a": {"uri": ""}}, {}, "source a needs a URI or a file"),
        (0, {}, "webcam 0 is the device /dev/video0"),
        (b"a.mp4", {}, "source source must be .* as text, got bytes"),
        (
            (path for path in [STREET]),
            {},
            "source source must be .* as text, got generator; several sources are a list",
        ),
        ({STREET}, {}, "got set; several sources are a list"),
        (np.zeros((4, 6, 3), np.uint8), {}, r"source source is an image \(ndarray\), .* Pipeline\(.*PushSource"),
        ({"cam": np.zeros((4, 6, 3), np.uint8)}, {}, r'push\("cam", image\)'),
        ({"cam": streamkit.PushSource}, {}, r"source cam is the class PushSource; create one: PushSource\("),
    ],
)
def test_an_invalid_argument_is_refused_with_the_fix(sources, options, text):
    with pytest.raises(ConfigError, match=text) as raised:
        streamkit.run(sources, **{"model": "demo", "device": "cpu", **options})
    assert len(str(raised.value)) < 300


def test_a_pipeline_without_sources_is_refused():
    with pytest.raises(ConfigError, match="a pipeline needs sources"):
        streamkit.run({"stages": {"detect": {"model": "demo"}}})


def test_numpy_values_are_converted():
    line = np.array([[320, 0], [320, 360]])
    stages = {
        "track": {},
        "door": {"stage": "line_counter", "line": line},
        "zone": {"polygon": [*line, (0, np.int64(9))]},
    }
    score = np.float32(0.5)
    frames = streamkit.run(
        STREET, model="demo", stages=stages, device="cpu", limit=1, set={"stages.detect.min_score": score}
    )
    (frame,) = frames
    assert frame.detections.score.min() >= 0.5
    assert frame.shown["door "].points == ((320.0, 0.0), (320.0, 360.0))


def test_set_takes_python_values_and_texts(tmp_path):
    pipeline = {"sources": {"a": STREET}, "stages": {"detect": {"model": "demo", "labels": ["car"]}}}

    def labels(value):
        (frame,) = streamkit.run(pipeline, device="cpu", limit=1, set={"stages.detect.labels": value})
        return set(frame.detections.label)

    assert labels(["person"]) == labels("[person]") == {"person"}
    assert labels(None) == {"car", "person", "bike"}
    path = tmp_path / "a #1: b.jsonl"  # as YAML, this would be a comment
    list(
        streamkit.run(
            {**pipeline, "stages": {**pipeline["stages"], "jsonl": {"path": "x"}}},
            device="cpu",
            limit=1,
            set={"stages.jsonl.path": path},
        )
    )
    assert path.is_file()


def test_a_stream_shows_its_sources_and_state():
    frames = streamkit.run({"a": STREET, "b": STREET}, model="demo", device="cpu")
    assert repr(frames) == "FrameStream(a, b; not started on cpu)"
    next(frames)
    assert repr(frames) == "FrameStream(a, b; running on cpu)"
    frames.close()
    assert repr(frames) == "FrameStream(a, b; ended on cpu)"


@pytest.mark.parametrize("daemon", [False, True])
def test_leaving_a_loop_in_a_thread_closes_its_files(tmp_path, daemon):
    path = tmp_path / "out.mp4"
    sizes = []
    pipeline = {"sources": {"a": STREET}, "stages": {"video": {"path": str(path)}}}

    def leave():
        for _ in streamkit.run(pipeline, device="cpu"):
            break
        sizes.append(path.stat().st_size if path.exists() else 0)

    thread = threading.Thread(target=leave, daemon=daemon)
    thread.start()
    thread.join()
    assert sizes[0] > 0


FRAMES_IN_USE = """
import builtins
import streamkit

frames = streamkit.run("samples/street.mp4", model="demo", device="cpu", limit=40)
frame = next(frames)
builtins.kept = [frame]
builtins.kept.append(builtins.kept)
"""


@pytest.mark.parametrize("end", ["", "raise ArithmeticError"])
def test_frames_kept_until_python_exits_cause_no_error(end, root):
    completed = subprocess.run(
        [sys.executable, "-c", FRAMES_IN_USE + end], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert "ignored" not in completed.stderr
    assert ("ArithmeticError" in completed.stderr) == bool(end)
