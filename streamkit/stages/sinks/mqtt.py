# SPDX-License-Identifier: Apache-2.0
"""Sink: messages to an MQTT broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from streamkit.core.data import Frame
from streamkit.core.stage import Count, stage
from streamkit.emit.client import Client, Tls, address
from streamkit.emit.emitter import Emitter
from streamkit.emit.home_assistant import devices
from streamkit.emit.mqtt import SCHEMES, MqttClient

# Control characters and noncharacters of Unicode, over which MQTT brokers close the connection.
_NO_CHARACTERS = "".join(chr((plane << 16) + last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_FORBIDDEN = f"\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NO_CHARACTERS}"
_MISSED = 3  # missed records after which sensors are unavailable


@stage("mqtt")
class MqttSink(Emitter):
    """Send records to an MQTT broker, each acknowledged (MQTT 5, QoS 1)."""

    template_options: ClassVar[tuple[str, ...]] = ("topic",)
    unsafe: ClassVar[str] = f"[+#{_FORBIDDEN}]"  # `/` stays

    url: Annotated[str, 'the broker, such as "mqtts://${USER}:${PASSWORD}@broker:8883"; mqtt:// is not encrypted.']
    topic: Annotated[str, "a template with {source}, {label}, {stage}, {kind} or {track_id}."] = "streamkit/{source}"
    batch: Annotated[
        Count,
        "up to this many records of one topic are sent in one message, as a JSON array, and wait up to 0.1 s for each "
        "other; thousands of records a second need it.",
    ] = 1
    retain: Annotated[bool, "the broker keeps the last message of each topic for later subscribers."] = False
    status: Annotated[str | None, "a topic that retains online, or offline as soon as this process is gone."] = None
    discovery: Annotated[
        str | None,
        "Home Assistant's discovery prefix, usually homeassistant. Each source becomes a device, with a sensor that "
        "counts objects for each of labels, or an entity for the events that when names.",
    ] = None
    tls: Annotated[Tls | None, "files for mqtts://, such as {ca: ca.pem, cert: me.pem, key: me.key}."] = None

    def check(self) -> None:
        """See `Emitter.check`."""
        self._at = address(self.url, SCHEMES, self.tls)
        if "+" in self.topic or "#" in self.topic:
            raise ValueError(f"topic cannot contain the wildcards + and #, got {self.topic!r}")
        for option in ("topic", "status", "discovery"):
            if re.search(f"[{_FORBIDDEN}]", getattr(self, option) or ""):
                raise ValueError(f"{option} cannot contain control characters, got {getattr(self, option)!r}")
        for option in ("status", "discovery"):
            if re.search(r"^$|[+#{}]", getattr(self, option) or "plain"):
                raise ValueError(f"{option} must be a plain topic, without + # {{ }}, got {getattr(self, option)!r}")
        if self.discovery is not None:
            self._check_discovery()

    def _check_discovery(self) -> None:
        if self.send == "objects":
            raise ValueError("discovery needs send: frames, to show object counts, or send: events")
        if self.send == "frames" and not self.labels:
            raise ValueError("discovery makes a sensor for each label; write labels, as in [person, car]")
        if self.send == "events" and not all("." in name for name in self._kinds() or [""]):
            raise ValueError("discovery makes an entity for each event; write when, as in [crossing.crossed]")
        if self.batch != 1:
            raise ValueError(
                f"Home Assistant reads one record per message; leave batch out with discovery, got {self.batch}"
            )
        if "{source}" not in self.topic or self.topic.count("{") > 1:
            raise ValueError(
                f"with discovery each source has one topic, as in streamkit/{{source}}, got {self.topic!r}"
            )

    def _kinds(self) -> list[str]:
        return [self.when] if isinstance(self.when, str) else self.when or []

    def write_encoded(self, frame: Frame, encoded: Callable[[], dict[str, Any]]) -> None:
        """See `Emitter.write_encoded`; a new source is announced first."""
        if self.discovery is not None and frame.source not in self._announced:
            self._announced.add(frame.source)
            topic = self._topics.fill((frame.source,))[0].decode()
            self._client.retained |= devices(
                self.discovery,
                frame.source,
                topic,
                self._status(),
                labels=self.labels or (),
                kinds=self._kinds(),
                expire_s=None if self.every is None else _MISSED * self.every,
            )
        super().write_encoded(frame, encoded)

    def _status(self) -> str:
        if self.status is not None or self.discovery is None:
            return self.status or ""
        return f"{self.topic.partition('{')[0].rstrip('/') or self.discovery}/status"

    def client(self) -> Client:
        """See `Emitter.client`."""
        self._client = MqttClient(self._at, self.tls, self.batch, self.retain, self._status() or None)
        self._announced: set[str] = set()
        return self._client
