# SPDX-License-Identifier: Apache-2.0
"""Messages in the form of chat services, filled from records.

The forms are those of the services' documentation: Slack's incoming webhooks, Microsoft Teams' workflows (an adaptive
card), Telegram's `sendMessage`, and ntfy's publishing as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from streamkit.emit.mail_format import summary

TemplateName = Literal["slack", "teams", "telegram", "ntfy"]

TEMPLATES: dict[TemplateName, dict[str, Any]] = {
    "slack": {"text": "{text}\n{link}"},
    "teams": {
        "type": "message",
        "attachments": [
            {
                "contentType": "application/vnd.microsoft.card.adaptive",
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "body": [
                        {"type": "TextBlock", "text": "{text}", "weight": "bolder", "wrap": True},
                        {"type": "TextBlock", "text": "{time}\n{link}", "isSubtle": True, "wrap": True},
                    ],
                },
            }
        ],
    },
    "telegram": {"text": "{text}\n{link}"},
    "ntfy": {"title": "{source}", "message": "{text}", "click": "{link}"},
}
"""The forms by name. Telegram needs the field `chat_id`, ntfy the field `topic`."""

NEEDED_FIELDS: dict[TemplateName, str] = {"telegram": "chat_id", "ntfy": "topic"}

VARIABLES = ("text", "source", "time", "stage", "kind", "label", "id", "link")
"""What stands in braces in a template."""

_VARIABLE = re.compile(r"\{(\w+)\}")


def template_of(template: TemplateName | Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A template with further fields.

    Raises:
        ValueError: a needed field is missing, or a template names an unknown variable.
    """
    if isinstance(template, str):
        if (field := NEEDED_FIELDS.get(template)) is not None and not fields.get(field):
            raise ValueError(f"template {template} needs fields: {{{field}: ...}}")
        return {**TEMPLATES[template], **fields}
    for name in _VARIABLE.findall(json.dumps(template)):
        if name not in VARIABLES:
            raise ValueError(f"template: {{{name}}} is unknown; these are known: {', '.join(VARIABLES)}")
    return {**template, **fields}


def message_of(template: Mapping[str, Any], body: bytes, link: str) -> bytes:
    """A record in the form of a template, as JSON. Entries that become empty are left out.

    Args:
        template: from `template_of`.
        body: the record, a JSON object.
        link: what {link} stands for; empty for none.
    """
    record = json.loads(body)
    event = record.get("event") or {}
    detection = record.get("object") or {}
    values = {
        "text": summary(record),
        "source": record["source"],
        "time": record.get("time") or f"{record.get('pts_s', 0.0):.1f} s",
        "stage": event.get("stage", ""),
        "kind": event.get("kind", ""),
        "label": event.get("data", {}).get("label", detection.get("label", "")),
        "id": record["id"],
        "link": link,
    }
    return json.dumps(_filled(template, values), ensure_ascii=False).encode()


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        filled = {key: _filled(child, values) for key, child in template.items()}
        return {key: child for key, child in filled.items() if child != ""}
    if isinstance(template, (list, tuple)):
        return [_filled(child, values) for child in template]
    if isinstance(template, str):
        return _VARIABLE.sub(lambda match: str(values.get(match[1], match[0])), template).strip()
    return template
