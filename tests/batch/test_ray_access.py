"""Which Ray clusters are joined: not those that run the code of everybody on the internet."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from support.messages import collect
from support.packages import require
from support.rtsp import free_port

from streamkit.batch.ray_access import (
    AccessProbe,
    OpenClusterError,
    check_access,
    choose_token,
    login_hint,
    public_addresses,
)
from streamkit.batch.ray_cluster import join

require("ray")

TOKEN = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("addresses", "public"),
    [
        (["10.0.0.5", "192.168.1.2", "172.16.0.1", "127.0.0.1", "100.64.0.1", "169.254.1.1"], []),
        (["fd00::2", "fe80::1%eth0", "::1"], []),
        (["8.8.8.8", "10.0.0.5", "8.8.8.8", "2001:4860:4860::8888"], ["8.8.8.8", "2001:4860:4860::8888"]),
        (["head.example", ""], []),
    ],
)
def test_public_addresses_are_recognized(addresses, public):
    assert public_addresses(addresses) == public


class Answer:
    """What a cluster answers to a client without a token."""

    def __init__(self, needs: bool) -> None:
        self.needs = needs

    def needs_token(self) -> bool:
        return self.needs


@pytest.mark.parametrize(
    ("nodes", "needs", "insecure", "refused", "warned"),
    [
        (["8.8.8.8"], False, False, True, False),
        (["10.0.0.5", "8.8.4.4"], False, False, True, False),
        (["8.8.8.8"], False, True, False, True),
        (["8.8.8.8"], True, False, False, False),
        (["10.0.0.5"], False, False, False, True),
        (["10.0.0.5"], True, False, False, False),
    ],
)
def test_a_cluster_that_is_open_to_the_internet_is_refused(nodes, needs, insecure, refused, warned):
    messages = collect()
    if refused:
        with pytest.raises(OpenClusterError, match=r"^--ray auto: .* 8\.8\.\d\.\d: start Ray with RAY_AUTH_MODE=token"):
            check_access("--ray auto", "10.0.0.5:6379", nodes, Answer(needs), insecure=insecure)
    else:
        check_access("--ray auto", "10.0.0.5:6379", nodes, Answer(needs), insecure=insecure)
    assert bool(messages) == warned
    assert all("everybody who reaches its ports runs code on its nodes" in message for message in messages)


@pytest.fixture
def guarded_head(tmp_path):
    """A real head of Ray with a token, on loopback: its address."""
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # the names of sockets have to be short
    port = free_port()
    environment = {
        **os.environ,
        "HOME": folder,
        "RAY_TMPDIR": folder,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
    }
    options = {
        "--port": port,
        "--ray-client-server-port": free_port(),
        "--dashboard-agent-listen-port": free_port(),
        "--min-worker-port": 0,
        "--max-worker-port": 0,
        "--include-dashboard": "false",
        "--num-cpus": 1,
        "--object-store-memory": 80_000_000,
    }
    command = [Path(sys.executable).with_name("ray"), "start", "--head"]
    command += [f"{name}={setting}" for name, setting in options.items()]
    try:
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=150)
        yield f"127.0.0.1:{port}"
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if any(folder in word for word in process.info["cmdline"] or ()):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow  # a head takes 12 s to start
def test_clusters_report_whether_they_require_a_token(guarded_head, ray_nodes):
    guarded = AccessProbe(guarded_head)
    open_to_all = AccessProbe(ray_nodes.address)
    assert guarded.needs_token()
    assert not open_to_all.needs_token()
    assert login_hint(guarded).startswith("; the cluster needs a token: set RAY_AUTH_MODE=token")
    assert login_hint(open_to_all) == ""


@pytest.mark.long
def test_joining_an_open_cluster_in_a_network_warns(ray_nodes):
    messages = collect()
    ray = join(ray_nodes.address, None)
    ray.shutdown()
    assert [
        message
        for message in messages
        if "the Ray cluster needs no token" in message and "RAY_AUTH_MODE=token" in message
    ]


@pytest.mark.parametrize("variable", ["RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", ""])
def test_a_local_cluster_gets_a_generated_token(monkeypatch, tmp_path, variable):
    """Ray would leave one in the home, which changes what `ray start` does later."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "chosen")
    choose_token()
    assert os.environ.get(variable or "RAY_AUTH_TOKEN")
    assert (os.environ.get("RAY_AUTH_TOKEN") == "chosen") == (variable == "RAY_AUTH_TOKEN")
    assert ("RAY_AUTH_TOKEN" in os.environ) == (variable != "RAY_AUTH_TOKEN_PATH")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
