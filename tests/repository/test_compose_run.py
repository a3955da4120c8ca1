"""The example's compose file as it runs: the broker by its own script, the server by its own command, both for real."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from support.broker_servers import free_port, listens
from support.brokers.mqtt import MosquittoServer
from support.dockerfile import read_dockerfile

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]


class Containers:
    """The folders of the containers: a file or command with their paths gets the paths here."""

    def __init__(self, folder, root):
        self.server_port = free_port()
        self.broker_port = free_port()
        shutil.copytree(DEPLOY, folder / "deploy", ignore=shutil.ignore_patterns("secrets"))
        subprocess.run(["sh", folder / "deploy" / "make_secrets.sh"], check=True)
        for name in ("data", "tmp", "mosquitto"):
            (folder / name).mkdir()
        self.places = {
            "/mosquitto/config": folder / "deploy" / "mosquitto",
            "/mosquitto/data": folder / "mosquitto",
            "/run/secrets": folder / "deploy" / "secrets",
            "/config": folder / "deploy" / "config",
            "/samples": root / "samples",
            "/data": folder / "data",
            "/tmp": folder / "tmp",
        }
        for path in [*self.places["/mosquitto/config"].iterdir(), self.places["/config"] / "pipeline.yaml"]:
            path.write_text(self.here(path.read_text()))
        with (self.places["/mosquitto/config"] / "mosquitto.conf").open("a") as config:
            config.write("user root\n" if os.getuid() == 0 else "")  # the container runs as a user without rights

    def here(self, text):
        inside = "|".join(self.places)
        text = re.sub(rf"(?<![\w./])({inside})(?=/)", lambda match: str(self.places[match[1]]), text)
        text = text.replace("listener 1883", f"listener {self.broker_port} 127.0.0.1")
        text = text.replace("mosquitto_sub -t", f"mosquitto_sub -p {self.broker_port} -t")
        return text.replace("@mosquitto", f"@127.0.0.1:{self.broker_port}")

    def secret(self, name):
        return (self.places["/run/secrets"] / name).read_text().strip()

    def healthy(self):
        """What the broker's health check returns."""
        command = [self.here(word) for word in COMPOSE["mosquitto"]["healthcheck"]["test"][1:]]
        return subprocess.run(command, check=False).returncode


@contextmanager
def started(command, **options):
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def until(true, seconds=30.0):
    end = time.monotonic() + seconds
    while not (outcome := true()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.25)
    return outcome


@pytest.fixture
def containers(tmp_path, root):
    if MosquittoServer.missing() or shutil.which("mosquitto_sub") is None:
        pytest.skip("no mosquitto with its clients on this machine")
    return Containers(tmp_path, root)


@pytest.fixture
def broker(containers, monkeypatch):
    """The broker, by the script of its container."""
    monkeypatch.setenv("PATH", "/usr/sbin", prepend=os.pathsep)
    command = [*map(containers.here, COMPOSE["mosquitto"]["command"])]
    with started(command) as process:
        until(lambda: listens(containers.broker_port) or process.poll() is not None)
        assert process.poll() is None
        yield process


def subscribed(containers, *options):
    """A client that prints messages, with the address of the broker."""
    return ["mosquitto_sub", "-p", str(containers.broker_port), "-W", "20", *options]


def test_the_broker_wants_the_password_and_keeps_to_its_topics(containers, broker):
    assert containers.healthy() == 0
    secret = containers.secret("mqtt_password")
    assert secret not in (containers.places["/tmp"] / "passwords").read_text()
    for path in (
        containers.places["/tmp"] / "passwords",
        containers.places["/tmp"] / "acl",
        containers.places["/tmp"] / "health" / "mosquitto_sub",
    ):
        assert path.stat().st_mode & 0o077 == 0
    account = ["-u", "streamkit", "-P", secret]
    for wrong in ([], ["-u", "streamkit", "-P", "wrong"], ["-u", "other", "-P", secret]):
        completed = subprocess.run(
            subscribed(containers, *wrong, "-t", "a"), capture_output=True, text=True, check=False
        )
        assert "not authorised" in completed.stderr.lower()
    with started(subscribed(containers, *account, "-v", "-C", "1", "-t", "#"), stdout=subprocess.PIPE) as client:
        publish = ["mosquitto_pub", "-p", str(containers.broker_port), *account, "-q", "1", "-r", "-m", "x", "-t"]
        for topic in ("other/gate", "streamkit/gate/crossed"):
            subprocess.run([*publish, topic], check=True)
        assert client.stdout.readline() == "streamkit/gate/crossed x\n"  # retained, so no order of start matters
    (containers.places["/run/secrets"] / "mqtt_password").write_text("wrong\n")
    assert containers.healthy() != 0


def test_the_server_becomes_healthy_sends_events_and_ends(containers, broker, root):
    service = COMPOSE["streamkit"]
    port = str(containers.server_port)
    environment = {name: containers.here(value) for name, value in service["environment"].items()}
    command = [*map(containers.here, service["command"]), f"--port={port}", "--device=cpu"]
    base = {**os.environ, "PYTHONPATH": str(root)}
    _, stages = read_dockerfile((DEPLOY / "Dockerfile").read_text())
    check = stages["runtime"].rest_of("HEALTHCHECK")[0].partition("CMD ")[2].replace("8000", port)
    health = [sys.executable, *json.loads(check)[1:]]
    account = ["-u", "streamkit", "-P", containers.secret("mqtt_password"), "-v", "-C", "1"]
    assert subprocess.run(health, stderr=subprocess.DEVNULL, check=False).returncode == 1
    with (
        started(subscribed(containers, *account, "-t", "streamkit/street/#"), stdout=subprocess.PIPE) as client,
        started(
            [sys.executable, "-m", "streamkit", *command],
            env=base | environment,
            cwd=containers.places["/data"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as server,
    ):
        until(lambda: subprocess.run(health, stderr=subprocess.DEVNULL, check=False).returncode == 0)
        topic, _, record = client.stdout.readline().partition(" ")
        assert (topic, json.loads(record)["event"]["kind"]) == ("streamkit/street/crossed", "crossed")
        admin = {"Authorization": f"Bearer {containers.secret('streamkit_token')}"}
        assert httpx.get(f"http://127.0.0.1:{port}/api/v1/session", headers=admin).json()["role"] == "admin"
        scraped(containers, port)
        server.send_signal(signal.SIGTERM)
        assert server.wait(float(service["stop_grace_period"].removesuffix("s"))) == 130
        output = server.stdout.read()
    assert not any(containers.secret(name) in output for name in ("streamkit_token", "metrics_token", "mqtt_password"))
    assert {path.name for path in containers.places["/data"].iterdir()} >= {"serve", "clips"}


def scraped(containers, port):
    """Prometheus' request, by the name and with the token that the example gives it."""
    url = f"http://127.0.0.1:{port}"
    bearer = {"Authorization": f"Bearer {containers.secret('metrics_token')}"}
    response = httpx.get(f"{url}/metrics", headers={"Host": f"streamkit:{port}", **bearer})
    assert (response.status_code, "streamkit_ready 1.0" in response.text) == (200, True)
    assert httpx.get(f"{url}/metrics", headers={"Host": "other", **bearer}).status_code == 421
    assert httpx.get(f"{url}/api/v1/session", headers=bearer).json()["role"] == "viewer"
    assert httpx.delete(f"{url}/api/v1/sources/street", headers=bearer).status_code == 403
