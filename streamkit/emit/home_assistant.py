# SPDX-License-Identifier: Apache-2.0
"""Home Assistant's MQTT discovery: retained messages that make each source a device there.

Source: home-assistant.io/integrations/mqtt. `PREFIX/COMPONENT/NODE/OBJECT/config` describes how to read the records.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import orjson

from streamkit.core.version import __version__


def devices(
    prefix: str,
    source: str,
    topic: str,
    status: str,
    *,
    labels: Sequence[str] = (),
    kinds: Sequence[str] = (),
    expire_s: float | None = None,
) -> dict[str, bytes]:
    """Discovery messages of one source, by topic: a sensor for each label, or one entity for all events.

    Args:
        prefix: Home Assistant's discovery prefix.
        source: name of the device.
        topic: topic of the source's records.
        status: topic with `online` or `offline`.
        labels: one sensor for each counts its objects on the last frame that was sent.
        kinds: events, as STAGE.KIND.
        expire_s: seconds without a record after which the sensors become unknown; None for never.
    """
    node = _name(topic)
    common: dict[str, Any] = {
        "state_topic": topic,
        "availability": [{"topic": status}],
        "device": {"identifiers": [node], "name": source, "manufacturer": "streamkit", "model": "source"},
        "origin": {"name": "streamkit", "sw_version": __version__},
    }
    if expire_s is not None and labels:
        common["expire_after"] = max(1, round(expire_s))
    messages = {}
    for label in labels:
        text = label.replace("\\", "\\\\").replace("'", "\\'")
        messages[f"{prefix}/sensor/{node}/{_name(label)}/config"] = {
            "name": label,
            "unique_id": f"{node}_{_name(label)}",
            "state_class": "measurement",
            "value_template": f"{{{{ value_json.objects | selectattr('label', 'eq', '{text}') | list | count }}}}",
            **common,
        }
    if kinds:
        messages[f"{prefix}/event/{node}/events/config"] = {
            "name": "events",
            "unique_id": f"{node}_events",
            "event_types": list(kinds),
            "value_template": (
                "{{ {'event_type': value_json.event.stage ~ '.' ~ value_json.event.kind, "
                "'track_id': value_json.event.get('track_id'), 'data': value_json.event.get('data')} | tojson }}"
            ),
            **common,
        }
    return {topic_: orjson.dumps(message) for topic_, message in messages.items()}


def _name(text: str) -> str:
    """Make a text a valid node or object id; different texts almost never collide."""
    plain = re.sub("[^A-Za-z0-9_-]", "_", text)
    return plain if plain == text.replace("/", "_") and "_" not in text else f"{plain}_{zlib.crc32(text.encode()):08x}"
