"""`streamkit serve`: what it prints, and that it ends as it should."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

PIPELINE = "sources: {{cam: {{uri: 'test://', pace: 10}}}}\nstages: {{jsonl: {{path: {out}}}}}\n"
TOKEN = "a token for the tests"


def begin(root, yaml, *options, **environment):
    """Start the command; return it, its address with a token where it printed one, and its lines so far."""
    running = subprocess.Popen(
        [sys.executable, "run.py", "serve", str(yaml), "--port", "0", "--data", str(yaml.parent / "data"), *options],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    lines = []
    assert running.stdout is not None
    for line in running.stdout:
        lines.append(line)
        if match := re.search(r"serving \S+ at (http://\S+)", line):
            return running, match[1], lines
    raise AssertionError("".join(lines))


@pytest.fixture
def yaml(tmp_path: Path) -> Path:
    path = tmp_path / "cam.yaml"
    path.write_text(PIPELINE.format(out=tmp_path / "cam.jsonl"))
    return path


def test_serve_generates_and_prints_a_token_and_ends_on_sigterm(root, yaml):
    running, url, lines = begin(root, yaml)
    try:
        address, _, token = url.partition("#token=")
        assert len(token) >= 32
        assert address.startswith("http://127.0.0.1:")
        with httpx.Client(base_url=address, timeout=20) as client:
            end = time.monotonic() + 30
            while client.get("/ready").status_code != 200:
                assert time.monotonic() < end
                time.sleep(0.1)
            head = {"authorization": f"Bearer {token}"}
            assert client.get("/api/v1/sources/cam/snapshot.jpg", headers=head).status_code == 200
            assert client.post("/api/v1/sources/cam/pause").status_code == 401
    finally:
        running.send_signal(signal.SIGTERM)
        rest, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert ("".join(lines) + rest).count(token) == 1
    assert yaml.with_name("cam.jsonl").read_text().count("\n") > 0


def test_a_configured_token_is_not_printed(root, yaml):
    running, url, lines = begin(root, yaml, STREAMKIT_TOKEN=TOKEN)
    try:
        assert "#" not in url
        answer = httpx.delete(f"{url}api/v1/sources/cam", headers={"authorization": f"Bearer {TOKEN}"}, timeout=20)
        assert answer.status_code == 204
        assert httpx.get(f"{url}api/v1/sources", timeout=20).json() == []  # and it goes on without any source
        assert running.poll() is None
    finally:
        running.send_signal(signal.SIGTERM)
        rest, _ = running.communicate(timeout=30)
    assert TOKEN not in "".join(lines) + rest


def test_the_server_reports_the_compilation_of_the_tracker(root, yaml, tmp_path):
    yaml.write_text("sources: {cam: {uri: 'test://', pace: 10}}\nstages: {detect: {model: demo}, track: {}}")
    running, url, _ = begin(root, yaml, STREAMKIT_TOKEN=TOKEN, NUMBA_CACHE_DIR=str(tmp_path / "empty"))
    try:
        with httpx.Client(base_url=url, timeout=20, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            note = "track (compiling, first run only)"
            end_s = time.monotonic() + 30
            while note not in client.get("/api/v1/status").json()["opening"]:
                assert time.monotonic() < end_s
                time.sleep(0.05)
    finally:
        running.kill()  # compiling is not waited for
        running.communicate(timeout=30)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--token", "short"], "at least 16 characters"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
        (["--device", "cpu,cuda:99"], "device cuda:99 cannot be used"),
        (["--set", "stages.jsonl.pth=x"], "no option 'pth'"),
    ],
)
def test_a_pipeline_that_cannot_be_served_is_reported(root, here, yaml, options, words):
    completed = here("serve", yaml, "--port", "0", "--data", yaml.parent / "data", *options, cwd=root)
    assert completed.returncode in (1, 2)
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr


def test_tokens_of_a_file_have_their_roles(root, yaml, tmp_path):
    file = tmp_path / "tokens.yaml"
    file.write_text("- {name: anna, role: viewer, token: the token of anna}\n")
    file.chmod(0o600)
    running, url, lines = begin(root, yaml, "--tokens", str(file), STREAMKIT_TOKEN=TOKEN)
    try:
        head = {"authorization": "Bearer the token of anna"}
        session = httpx.get(f"{url}api/v1/session", headers=head, timeout=20).json()
        assert (session["signed_in"], session["name"], session["role"]) == (True, "anna", "viewer")
        answer = httpx.delete(f"{url}api/v1/sources/cam", headers=head, timeout=20)
        assert answer.status_code == 403
        assert (tmp_path / "data" / "audit.db").is_file()
    finally:
        running.send_signal(signal.SIGTERM)
        rest, _ = running.communicate(timeout=30)
    assert "the token of anna" not in "".join(lines) + rest


@pytest.mark.parametrize(
    ("mode", "text", "words"),
    [
        (0o644, "- {name: anna, role: viewer, token: the token of anna}", "chmod 600"),
        (0o600, "- {name: admin, role: viewer, token: the token of anna}", "'admin' is that of --token"),
        (0o600, "- {name: anna, role: boss, token: the token of anna}", "tokens.yaml:1:3: role must be viewer"),
    ],
)
def test_unusable_tokens_are_reported(root, yaml, tmp_path, mode, text, words):
    file = tmp_path / "tokens.yaml"
    file.write_text(text)
    file.chmod(mode)
    completed = subprocess.run(
        [sys.executable, "run.py", "serve", str(yaml), "--port", "0", "--tokens", str(file)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode in (1, 2)
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
    assert "the token of anna" not in completed.stderr


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn", "prometheus_client"])
def test_a_missing_package_is_named_with_the_install_command(missing, monkeypatch):
    from streamkit.core.errors import MissingPackage
    from streamkit.serve.server import check_packages

    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingPackage, match=r"streamkit serve needs .*pip install -e '.*\[serve\]'"):
        check_packages()


def test_serve_may_start_without_any_source(root, tmp_path):
    yaml = tmp_path / "none.yaml"
    yaml.write_text(f"sources: {{}}\nstages: {{jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}\n")
    running, url, _ = begin(root, yaml, STREAMKIT_TOKEN=TOKEN)
    try:
        with httpx.Client(base_url=url, timeout=20, headers={"authorization": f"Bearer {TOKEN}"}) as client:
            assert client.get("/api/v1/sources").json() == []
            new = {"id": "cam", "uri": "test://", "options": {"pace": 20}}
            end = time.monotonic() + 30
            while client.get("/ready").status_code != 200 and time.monotonic() < end:
                time.sleep(0.1)
            assert client.post("/api/v1/sources", json=new).status_code == 201
            while not client.get("/api/v1/sources").json()[0]["frames"] and time.monotonic() < end:
                time.sleep(0.1)
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)
    assert (tmp_path / "cam.jsonl").read_text().count("\n") > 0


def test_served_files_play_in_real_time_by_default(root, tmp_path):
    """`run` reads as fast as it can; here that would be the cameras' loss."""
    yaml = tmp_path / "files.yaml"
    yaml.write_text(
        "sources:\n"
        "  film: 'test://?width=64&height=64&fps=5&frames=400'\n"
        "  quick: {uri: 'test://?width=64&height=64&fps=5&frames=400', pace: unpaced}\n"
        f"stages: {{jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}\n"
    )
    running, url, _ = begin(root, yaml, STREAMKIT_TOKEN=TOKEN)
    try:
        with httpx.Client(base_url=url, timeout=20) as client:
            end_s = time.monotonic() + 60
            while True:
                source_by_id = {source["id"]: source for source in client.get("/api/v1/sources").json()}
                if source_by_id["quick"]["state"] == "ended" and source_by_id["film"]["latency"]:
                    break
                assert time.monotonic() < end_s
                time.sleep(0.05)
        assert source_by_id["quick"]["frames"] == 400
        assert source_by_id["film"]["state"] == "running"
        assert source_by_id["film"]["frames"] < 350
        assert not source_by_id["quick"]["latency"]
    finally:
        running.terminate()
        running.communicate(timeout=30)


def test_remote_readers_need_a_token_and_metrics_have_a_separate_port(root, yaml):
    running, url, lines = begin(root, yaml, "--host", "0.0.0.0", "--metrics-port", "0", STREAMKIT_TOKEN=TOKEN)
    try:
        lines += [running.stdout.readline() for _ in range(3)]
        assert "reading needs a token" in lines[-3]
        assert "create people in the view Access" in lines[-2]
        metrics = re.search(r"metrics at (http://\S+), without a token", lines[-1])[1]
        with httpx.Client(timeout=20) as client:
            assert client.get(f"{url}api/v1/sources").status_code == 401
            assert client.get(f"{url}metrics").status_code == 401
            assert client.get(f"{url}metrics", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
            assert "streamkit_ready" in client.get(metrics).text
            assert client.get(metrics.replace("/metrics", "/api/v1/sources")).status_code == 404
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)


def test_a_public_server_is_announced_and_readable_without_a_token(root, yaml):
    running, url, _ = begin(root, yaml, "--host", "0.0.0.0", "--public", STREAMKIT_TOKEN=TOKEN)
    try:
        assert "--public: everybody who reaches this address reads" in running.stdout.readline()
        assert [source["id"] for source in httpx.get(f"{url}api/v1/sources", timeout=20).json()] == ["cam"]
    finally:
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=30)


def test_the_warnings_of_check_are_printed(root, yaml):
    """A person who hides faces learns that clips show them."""
    yaml.write_text(
        "sources: {cam: {uri: samples/street.mp4, loop: true}}\n"
        "stages: {draw: {blur: {zone: [[0, 0], [9, 0], [9, 9]]}}, record: {path: '{source}-{time}.mp4'}}\n"
    )
    running, _, lines = begin(root, yaml)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    (warning,) = [line for line in lines if "(warning)" in line]
    assert "record writes the source's own packets: what draw hides is clear in them; the API does not show" in warning
