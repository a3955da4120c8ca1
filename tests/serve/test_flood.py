"""`run.py serve` with few open files allowed, against more half-open connections than that."""

import contextlib
import resource
import signal
import socket
import subprocess
import sys
import time
import urllib.request

TEXT = """
sources: {cam: {uri: "test://?width=96&height=64", pace: 20}}
stages: {jsonl: {path: PATH}}
"""


def few_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


def test_half_open_connections_stop_neither_server_nor_pipeline(root, tmp_path):
    (tmp_path / "p.yaml").write_text(TEXT.replace("PATH", str(tmp_path / "cam.jsonl")))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "run.py", "serve", str(tmp_path / "p.yaml"), "--port", str(port), "--token", "x" * 16]
    log_file = open(tmp_path / "said", "w+")  # noqa: SIM115  closed below
    with log_file, subprocess.Popen(command, cwd=root, stderr=log_file, preexec_fn=few_files) as server:
        try:
            with contextlib.ExitStack() as stack:
                begin(port)
                for _ in range(320):
                    half = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
                    half.sendall(b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\n")
                before = frames(port)
                time.sleep(1)
                assert frames(port) - before >= 5  # of some 20: the machine may be busy
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                    assert b'streamkit_http_refused_total{cause="too_many_connections"}' in answer.read()
        finally:
            server.send_signal(signal.SIGINT)
            code = server.wait(30)
        log_file.seek(0)
        text = log_file.read()
    assert code in (0, 130), text
    assert "at most 64 connections" in text
    assert "Traceback" not in text
    assert text.count("\n") < 15


def begin(port):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            return frames(port)
        time.sleep(0.1)
    raise AssertionError("it does not begin")


def frames(port):
    import json

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/status", timeout=10) as answer:
        return json.load(answer)["frames"]
