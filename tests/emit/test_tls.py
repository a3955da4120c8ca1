"""Encrypted connections to real brokers: a good certificate is taken, one that nobody vouches for is not."""

import shutil
import ssl
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support.brokers.mqtt import MosquittoServer
from support.brokers.postgres import PostgresServer
from support.brokers.redis import RedisServer

from streamkit.emit.client import Message, SendError, address
from streamkit.stages.sinks.brokers import mqtt, postgres, redis, webhook

BODY = b'{"id":"s-1","source":"a","frame":1,"pts_s":0.1,"objects":[]}'


class SafeMosquitto(MosquittoServer):
    def command(self):
        arguments = super().command()
        with (self.folder / "mosquitto.conf").open("a") as conf:
            conf.write(f"certfile {self.certs}/cert.pem\nkeyfile {self.certs}/key.pem\n")
        return arguments


class SafeRedis(RedisServer):
    def command(self):
        arguments = super().command()
        arguments[arguments.index("--port") + 1] = "0"
        files = ["--tls-cert-file", f"{self.certs}/cert.pem", "--tls-key-file", f"{self.certs}/key.pem"]
        return [*arguments, "--tls-port", str(self.port), *files, "--tls-auth-clients", "no"]


class SafePostgres(PostgresServer):
    def command(self):
        arguments = super().command()
        key = self.folder / "key.pem"
        shutil.copy(self.certs / "key.pem", key)
        key.chmod(0o600)
        shutil.chown(key, **{"user": "postgres"} if self._as() else {"group": -1})
        return [*arguments, "-c", "ssl=on", "-c", f"ssl_cert_file={self.certs}/cert.pem", "-c", f"ssl_key_file={key}"]


def mqtt_client(url, tls):
    return mqtt.MqttClient(address(url, mqtt.SCHEMES, tls), tls)


def redis_client(url, tls):
    return redis.RedisClient(address(url, redis.SCHEMES, tls), tls)


def postgres_client(url, tls):
    return postgres.PostgresClient(address(url, postgres.SCHEMES), "frames", "frames", tls, True)


@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket")  # paho leaves one after a failed handshake
@pytest.mark.parametrize(
    ("kind", "url", "make"),
    [
        (SafeMosquitto, "mqtts://streamkit:{}@127.0.0.1:{}", mqtt_client),
        (SafeRedis, "rediss://:{}@127.0.0.1:{}/0", redis_client),
        (SafePostgres, "postgres://streamkit:{}@127.0.0.1:{}/postgres", postgres_client),
    ],
)
def test_a_broker_with_an_invalid_certificate_is_refused(kind, url, make, certificates):
    if (reason := kind.missing()) is not None:
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="streamkit-tls-"))
    folder.chmod(0o755)
    broker = kind(folder)
    broker.certs = certificates
    broker.start()
    try:
        at = url.format(broker.password.replace("/", "%2F").replace(":", "%3A"), broker.port)
        good = make(at, {"ca": str(certificates / "ca.pem")})
        good.connect()
        good.deliver([Message("s-1", "a/b", "", BODY)])
        good.close()
        strange = make(at, None)
        with pytest.raises(SendError, match="certificate verify failed"):
            strange.connect()
        strange.close()
    finally:
        broker.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_a_webhook_with_an_invalid_certificate_is_refused(certificates):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.server.received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.received = []
        server.handle_error = lambda request, address: None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{server.server_port}/"
        try:
            for tls in ({"ca": str(certificates / "ca.pem")}, None):
                client = webhook.WebhookClient(address(url, webhook.SCHEMES, tls), url, tls)
                client.connect()
                if tls:
                    client.deliver([Message("s-1", "", "", BODY)])
                else:
                    with pytest.raises(SendError, match="CERTIFICATE_VERIFY_FAILED"):
                        client.deliver([Message("s-1", "", "", BODY)])
                client.close()
        finally:
            server.shutdown()
            thread.join()
        assert server.received == [b"[" + BODY + b"]"]
