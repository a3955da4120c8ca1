import json
import os
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest

from streamkit.core.data import Detections, Frame
from streamkit.core.errors import OutputError
from streamkit.core.stage import Context
from streamkit.stages.sinks.jsonl import JsonlSink


def frame(index, source="street", n=2, **kwargs):
    table = Detections(
        np.full((n, 4), 5.5, np.float32), np.full(n, 0.5, np.float32), np.zeros(n, np.int32), labels=("car",)
    )
    return Frame(source, index, index / 25, 64, 48, tables={"detect": table}, **kwargs)


def sink(path, **options):
    jsonl_sink = JsonlSink(path=str(path), **options)
    jsonl_sink.context = Context(id="jsonl")
    jsonl_sink.open()
    return jsonl_sink


def read(path):
    return [json.loads(text) for text in path.read_text().splitlines()]


def test_each_frame_is_a_record(tmp_path):
    path = tmp_path / "cam" / "street.jsonl"
    out = sink(path)
    for i in range(5):
        out.write(frame(i, n=i % 2))
    out.write(frame(5, n=0, error="detect failed"))
    assert not path.exists()
    out.end("street")
    assert not path.exists()
    out.close()
    records = read(path)
    assert [r["frame"] for r in records] == [0, 1, 2, 3, 4, 5]
    assert [len(r["objects"]) for r in records] == [0, 1, 0, 1, 0, 0]
    assert records[5]["error"] == "detect failed"
    assert os.listdir(path.parent) == ["street.jsonl"]


def test_cameras_append_to_a_readable_file(tmp_path):
    path = tmp_path / "gate.jsonl"
    for run in range(2):
        out = sink(path)
        for i in range(3):
            out.write(frame(i, "gate", time_s=1785585600.0 + i))
        out.end("gate")
        assert len(read(path)) == 3 * (run + 1)
        out.close()
    assert read(path)[0]["time"] == "2026-08-01T12:00:00.000Z"


def test_a_partial_record_is_removed(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"frame":0}\n{"fra')
    out = sink(path, if_exists="append")
    out.write(frame(1))
    out.close()
    assert [r["frame"] for r in read(path)] == [0, 1]
    assert out.context.counters["torn lines removed"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "{sorce}.jsonl"}, "placeholder"),
        ({"path": ""}, "must name a file"),
        ({"path": "-", "rotate": {"every": 60.0}}, "standard output"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        JsonlSink(**options)


def test_options_of_a_yaml_are_read():
    from pydantic import ValidationError

    from streamkit.config.validate import model_of

    model = model_of(JsonlSink)
    assert model.validate_python({"path": "a", "rotate": {"every": "1h", "size": "100MB"}}) == {
        "path": "a",
        "rotate": {"every": 3600.0, "size": 100_000_000},
    }
    for bad in ({"path": "a", "rotate": {"evry": 1}}, {"path": "a", "if_exists": "no"}, {}):
        with pytest.raises(ValidationError):
            model.validate_python(bad)


def test_files_are_rotated(tmp_path):
    out = sink(tmp_path / "a.jsonl", rotate={"size": 400})
    for i in range(10):
        out.write(frame(i))
    out.close()
    parts = sorted(tmp_path.iterdir(), key=lambda p: (len(p.name), p.name))
    assert len(parts) > 2
    assert all(p.stat().st_size <= 400 for p in parts)
    assert [r["frame"] for p in parts for r in read(p)] == list(range(10))


def test_records_are_written_to_standard_output(capfdbinary):
    out = sink("-")
    out.write(frame(3))
    out.close()
    assert json.loads(capfdbinary.readouterr().out)["frame"] == 3


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from test_jsonl import frame, sink
out = sink({path!r})
try:
    for i in range({n}):
        out.write(frame(i))
        if i == {crash}:
            import os, signal
            out.lines.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    out.close()
except Exception as error:
    print(type(error).__name__, error, file=sys.stderr)
    sys.exit(1)
"""


def run(path, n=10, crash=-1, command='"$1" -c "$2"'):
    script = SCRIPT.format(tests=os.path.dirname(__file__), path=str(path), n=n, crash=crash)
    return subprocess.run(
        ["bash", "-c", command, "bash", sys.executable, script], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_crash_leaves_no_file_of_the_final_name(tmp_path):
    path = tmp_path / "a.jsonl"
    run(path, crash=5)
    assert not path.exists()
    assert os.listdir(tmp_path) == [".a.jsonl.part"]
    run(path)
    assert len(read(path)) == 10
    assert os.listdir(tmp_path) == ["a.jsonl"]


def test_a_closed_pipe_is_reported_once():
    completed = run("-", n=100_000, command='"$1" -c "$2" | head -n 1; exit ${PIPESTATUS[0]}')
    assert completed.returncode == 1
    assert json.loads(completed.stdout)["frame"] == 0
    assert completed.stderr.strip() == "OutputError cannot write standard output: its reader has gone away"


def test_an_impossible_folder_is_reported(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        sink(tmp_path / "file" / "a.jsonl")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_reported():
    out = sink("/dev/full")
    with pytest.raises(OutputError, match="cannot write /dev/full: the disk is full"):
        out.write(frame(0))
    out.close()


def test_memory_is_flat_over_many_frames(tmp_path):
    out = sink(tmp_path / "a.jsonl")
    repeated = frame(0)
    for _ in range(2000):
        out.write(repeated)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            out.write(repeated)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    out.close()
    assert grown < 150_000, f"{grown} bytes more after 10,000 frames; a block of lines is 65,536"


def test_the_flush_interval_is_short(tmp_path):
    path = tmp_path / "a.jsonl"
    out = sink(path)
    out.write(frame(0, time_s=1.0))
    time.sleep(0.3)
    out.write(frame(1, time_s=2.0))
    assert len(read(path)) == 2
    out.close()
