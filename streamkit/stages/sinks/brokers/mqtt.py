# SPDX-License-Identifier: Apache-2.0
"""MQTT 5 with paho-mqtt: each message with QoS 1, acknowledged by the broker's PUBACK."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from streamkit.core.data import Frame
from streamkit.core.errors import needs
from streamkit.core.stage import Count, stage
from streamkit.emit.broker import Broker
from streamkit.emit.client import (
    Address,
    Client,
    Message,
    RecordRejected,
    SendError,
    ServerClient,
    Tls,
    address,
    tls_context,
)
from streamkit.emit.emitter import Emitter
from streamkit.emit.home_assistant import devices

if TYPE_CHECKING:
    import paho.mqtt.client as paho

logger = logging.getLogger(__name__)

SCHEMES = {"mqtt": (1883, False), "mqtts": (8883, True)}

_KEEPALIVE_S = 30
_PERMANENT = {0x87, 0x90, 0x95, 0x99}  # not authorized, topic name invalid, packet too large, payload format invalid
_FAILED = 0x80  # reason codes from here on
_ONLINE = b"online"
_OFFLINE = b"offline"
_TRIES = 3  # to announce a message over which the broker ends the connection
_POLL_S = 0.1
_GATHER_S = 0.1  # for messages of several records


@dataclass(frozen=True)
class PacketLimit:
    """How large a packet of a broker may be.

    Attributes:
        max_bytes: the broker's Maximum Packet Size; 0 if it has none.
    """

    max_bytes: int = 0

    def refusal(self, topic: str, payload_bytes: int) -> str | None:
        """Why the broker would end the connection over this message, with QoS 1; None if it accepts it."""
        if not self.max_bytes:
            return None
        length = 2 + len(topic.encode()) + 2 + 1 + payload_bytes  # topic, message id, no properties
        size = 1 + next(n for n in range(1, 5) if length < 1 << 7 * n or n == 4) + length
        if size <= self.max_bytes:
            return None
        return f"the message has {size} bytes, and the broker accepts {self.max_bytes}"

    def packets(self, messages: Sequence[Message], batch: int) -> Iterator[tuple[str, Sequence[int], bytes]]:
        """Yield topic, record indices and payload of packets of up to `batch` records of a topic, in order."""
        if batch == 1:
            for index, message in enumerate(messages):
                yield message.topic, (index,), message.body
            return
        topics: dict[str, list[int]] = {}
        for index, message in enumerate(messages):
            topics.setdefault(message.topic, []).append(index)
        for indices in sorted(part for topic in topics.values() for part in self._parts(messages, topic, batch)):
            yield messages[indices[0]].topic, indices, b"[" + b",".join([messages[i].body for i in indices]) + b"]"

    def _parts(self, messages: Sequence[Message], indices: Sequence[int], batch: int) -> Iterator[list[int]]:
        """Split the records of one topic into packets: up to `batch` records within the limit."""
        part: list[int] = []
        size = 1  # of the payload: brackets, and a comma between two
        for index in indices:
            more = len(messages[index].body) + 1
            full = len(part) == batch or self.refusal(messages[index].topic, size + more) is not None
            if part and full:
                yield part
                part = []
                size = 1
            part.append(index)
            size += more
        yield part


class MqttClient(ServerClient):
    """Sends to an MQTT broker.

    Args:
        server: the broker.
        tls: files for `mqtts`.
        batch: maximum number of records of one topic in a message, as a JSON array; 1 sends each as its own object.
        retain: let the broker retain the last message of each topic for later subscribers.
        status: a topic with the retained message `online`, or `offline` as soon as the connection ends.

    Attributes:
        retained: retained messages for the time of the connection, by topic; more may be added at any time.

    Raises:
        MissingPackage: paho-mqtt is not installed.
    """

    def __init__(
        self, server: Address, tls: Tls | None = None, batch: int = 1, retain: bool = False, status: str | None = None
    ) -> None:
        with needs("paho-mqtt", "mqtt"):
            import paho.mqtt.client as paho
        super().__init__(server, tls)
        self._paho = paho
        self._batch = batch
        self._retain = retain
        self.gather_s = _GATHER_S if batch > 1 else 0.0
        self._status = status
        self.retained: dict[str, bytes] = {}
        self._published: dict[str, bytes] = {}  # payloads published on this connection
        self._failures: Counter[str] = Counter()  # failures by topic: over some the broker ends the connection
        self._packet_limit = PacketLimit()
        self._in_flight = 0  # the broker's limit of packets; 0 for none
        self._client: paho.Client | None = None
        self._answers: dict[int, int] = {}  # by message id, the reason code of its PUBACK
        self._down: str | None = None

    def connect(self) -> None:
        """See `Client.connect`."""
        from paho.mqtt.enums import CallbackAPIVersion

        client = self._paho.Client(CallbackAPIVersion.VERSION2, protocol=self._paho.MQTTv5, reconnect_on_failure=False)
        client.connect_timeout = self.timeout_s
        client.max_inflight_messages = 65535
        if self._server.user is not None:
            client.username_pw_set(self._server.user, self._server.password)
        if self._server.tls:
            client.tls_set_context(tls_context(self._tls))
        if self._status is not None:
            client.will_set(self._status, _OFFLINE, qos=1, retain=True)
            self.retained[self._status] = _ONLINE
        answer: list[Any] = []
        client.on_connect = lambda client, data, flags, code, properties: answer.extend((code, properties))
        client.on_disconnect = lambda client, data, flags, code, properties: setattr(self, "_down", str(code))
        client.on_publish = lambda client, data, mid, code, properties: self._answers.__setitem__(mid, code.value)
        self._client = client
        self._down = None
        self._answers.clear()
        self._published = {}
        try:
            client.connect(self._server.host, self._server.port, keepalive=_KEEPALIVE_S)
        except (OSError, ValueError) as error:
            raise SendError(f"no connection: {error}") from error
        self._wait(lambda: bool(answer), "answer to CONNECT")
        code, limits = answer
        if code.is_failure:
            raise SendError(f"the broker refuses the connection: {code}")
        self._packet_limit = PacketLimit(getattr(limits, "MaximumPacketSize", 0))
        self._in_flight = getattr(limits, "ReceiveMaximum", 0)
        self._announce()

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`."""
        client = self._client
        assert client is not None
        self._announce()
        arrived = bytearray(len(messages))  # 1 for each that the broker has acknowledged
        sent: list[tuple[int, Sequence[int]]] = []  # message ids, and the indices of their records
        oversize: dict[int, str] = {}
        for topic, indices, payload in self._packet_limit.packets(messages, self._batch):
            if (reason := self._packet_limit.refusal(topic, len(payload))) is not None:
                oversize[indices[0]] = reason  # it is alone in its packet
                continue
            try:
                if self._in_flight and len(sent) >= self._in_flight:
                    first = sent[-self._in_flight][0]
                    self._wait(lambda mid=first: mid in self._answers, "acknowledgement")  # type: ignore[misc]
                info = client.publish(topic, payload, qos=1, retain=self._retain)
            except ValueError as error:  # a topic or payload that is invalid in MQTT
                self._collect(sent, arrived)
                raise RecordRejected(str(error), _leading(arrived)) from error
            if info.rc != self._paho.MQTT_ERR_SUCCESS:
                self._collect(sent, arrived)
                raise SendError(self._paho.error_string(info.rc), _leading(arrived))
            sent.append((info.mid, indices))
        return oversize | self._collect(sent, arrived)

    def idle(self) -> None:
        """See `Client.idle`."""
        self._announce()
        self._loop(0.0)

    def close(self) -> None:
        """See `Client.close`."""
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.reasoncodes import ReasonCode

        client = self._client
        self._client = None
        if client is not None:
            client.on_disconnect = None
            if self._down is None:
                # with a status topic, the broker must publish our will message, as if the connection had ended
                with_will = ReasonCode(PacketTypes.DISCONNECT, "Disconnect with will message")
                client.disconnect(None if self._status is None else with_will)
                client.loop(0.0)
            if (socket := client.socket()) is not None:
                socket.close()

    # --------------------------------------------------------------------------------------------------- inside

    def _announce(self) -> None:
        """Publish retained messages that the broker does not have yet."""
        assert self._client is not None
        for topic, payload in list(self.retained.items()):
            if self._published.get(topic) == payload or self._failures[topic] >= _TRIES:
                continue
            if (reason := self._packet_limit.refusal(topic, len(payload))) is None:
                try:
                    mid = self._client.publish(topic, payload, qos=1, retain=True).mid
                    self._wait(lambda mid=mid: mid in self._answers, "acknowledgement")  # type: ignore[misc]
                except SendError as error:
                    self._failures[topic] += error.disconnected
                    if self._failures[topic] >= _TRIES:
                        self._not_accepted(topic, str(error))
                    raise
                if (code := self._answers.pop(mid)) >= _FAILED:
                    reason = f"reason code 0x{code:02x}"
            if reason is not None:
                self._not_accepted(topic, reason)
                self._failures[topic] = _TRIES
            self._published[topic] = payload

    def _not_accepted(self, topic: str, why: str) -> None:
        logger.warning(self.redact(f"{self.where} does not accept {topic}: {why}; it is not published"))

    def _collect(self, sent: list[tuple[int, Sequence[int]]], arrived: bytearray) -> dict[int, str]:
        """Wait for every acknowledgement: a later message could otherwise get an old one with the same id.

        Returns:
            Reasons for permanently rejected records, by index.

        Raises:
            SendError: a message was not accepted; it must be sent again.
            RecordRejected: a message of several records is permanently rejected; one of them may be the cause.
        """
        refused: dict[int, str] = {}
        failed = shared = 0
        for mid, indices in sent:
            self._wait(lambda mid=mid: mid in self._answers, "acknowledgement", arrived)  # type: ignore[misc]
            code = self._answers.pop(mid)
            if code in _PERMANENT:
                refused[indices[0]] = f"reason code 0x{code:02x}"
                shared = max(shared, len(indices) - 1)
            elif code >= _FAILED:
                failed = failed or code
            else:
                for index in indices:
                    arrived[index] = 1
        if failed:
            raise SendError(f"the broker does not accept a message: reason code 0x{failed:02x}", _leading(arrived))
        if shared:
            raise RecordRejected(next(iter(refused.values())), _leading(arrived))
        return refused

    def _wait(self, there: Any, what: str, arrived: bytes | bytearray = b"") -> None:
        until_s = time.monotonic() + self.timeout_s
        try:
            while not there():
                if self.over() and not self._answers:
                    raise SendError("the run ends")
                if time.monotonic() > until_s:
                    raise SendError(f"no {what} within {self.timeout_s:g} s")
                self._loop(_POLL_S)
        except SendError as error:
            if not there():
                error.done = _leading(arrived)
                raise

    def _loop(self, wait_s: float) -> None:
        assert self._client is not None
        code = self._client.loop(wait_s)
        if code != self._paho.MQTT_ERR_SUCCESS or self._down is not None:
            raise SendError(f"the connection is lost: {self._down or self._paho.error_string(code)}", disconnected=True)


def _leading(arrived: bytes | bytearray) -> int:
    """Number of leading records that have arrived."""
    first = arrived.find(0)
    return len(arrived) if first < 0 else first


# Control characters and noncharacters of Unicode, over which MQTT brokers close the connection.
_NO_CHARACTERS = "".join(chr((plane << 16) + last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
_FORBIDDEN = f"\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_NO_CHARACTERS}"
_MISSED = 3  # missed records after which sensors are unavailable


@stage("mqtt")
class MqttSink(Emitter):
    """Send records to an MQTT broker, each acknowledged (MQTT 5, QoS 1)."""

    broker: ClassVar[Broker] = Broker(
        product="an MQTT 5 broker",
        acknowledged_by="PUBACK (QoS 1)",
        page="emitters-brokers.md#mqtt",
        example="mqtt://127.0.0.1",
        modules=("paho",),
    )

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
        self._server = address(self.url, SCHEMES, self.tls)
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
        self._client = MqttClient(self._server, self.tls, self.batch, self.retain, self._status() or None)
        self._announced: set[str] = set()
        return self._client
