"""What the tests of emitters share: certificates, and a RabbitMQ, which takes seconds to start."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.broker_servers import free_port
from support.brokers.amqp import RabbitMqServer


@pytest.fixture(scope="session")
def certificates() -> Iterator[Path]:
    """A folder with ca.pem, and cert.pem and key.pem of 127.0.0.1 signed by it."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on this machine")
    folder = Path(tempfile.mkdtemp(prefix="streamkit-tls-"))
    folder.chmod(0o755)
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout"]
    run = {"cwd": folder, "check": True, "capture_output": True}
    subprocess.run([*make, "ca.key", "-out", "ca.pem", "-subj", "/CN=ca"], **run)
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*make, "key.pem", "-out", "cert.pem", *signed, "-addext", "basicConstraints=CA:FALSE"], **run)
    for path in folder.iterdir():
        path.chmod(0o644)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def rabbitmq(certificates: Path) -> Iterator[RabbitMqServer]:
    """A RabbitMQ for all tests of this process, with a second listener at `safe_port` that speaks TLS."""
    if (reason := RabbitMqServer.missing()) is not None:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="streamkit-amqp-"))
    broker = RabbitMqServer(folder)
    broker.safe_port = free_port()
    files = {"cacertfile": "ca.pem", "certfile": "cert.pem", "keyfile": "key.pem"}
    options = ", ".join(f'{{{name}, "{certificates}/{file}"}}' for name, file in files.items())
    broker.settings |= {
        "ssl_listeners": f'[{{"127.0.0.1", {broker.safe_port}}}]',
        "ssl_options": f"[{options}, {{verify, verify_none}}]",
    }
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)
