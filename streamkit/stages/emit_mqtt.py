"""Emit: messages to an MQTT broker."""

from __future__ import annotations

from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.mqtt import SCHEMES, MqttClient
from streamkit.stage import Count, stage


@stage("mqtt")
class Mqtt(Emitter):
    """Send records to an MQTT broker, each acknowledged (MQTT 5, QoS 1).

    Options:
        url: the broker, such as "mqtts://${USER}:${PASSWORD}@broker:8883"; mqtt:// is not encrypted.
        topic: with {source} in it, or what else the records know: {label}, {stage}, {kind}, {track_id}.
        batch: so many records of one topic may go in one message, as a JSON array; thousands a second need it.
        retain: the broker keeps the last message of each topic for who subscribes later.
        tls: files for mqtts://, such as {ca: ca.pem, cert: me.pem, key: me.key}.
    """

    url: str
    topic: str = "streamkit/{source}"
    batch: Count = 1
    retain: bool = False
    tls: Tls | None = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        if "+" in self.topic or "#" in self.topic:
            raise ValueError(f"topic cannot have + or # in it, which are for subscribers, got {self.topic!r}")

    def templates(self) -> dict[str, str]:
        """See `Emitter.templates`."""
        return {"topic": self.topic}

    @staticmethod
    def clean(text: str) -> str:
        """See `Emitter.clean`: wildcards become underscores; a source's slashes make levels."""
        return text.translate({ord("+"): "_", ord("#"): "_", 0: "_"})

    def client(self) -> Client:
        """See `Emitter.client`."""
        return MqttClient(self._at, self.tls, self.batch, self.retain)
