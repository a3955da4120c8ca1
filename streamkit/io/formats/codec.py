# SPDX-License-Identifier: Apache-2.0
"""Conversion of a record's JSON for a broker: to another format, with a schema prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import orjson

from streamkit.io.formats import avro, protobuf

Format = Literal["json", "avro", "protobuf"]

_MAGIC = b"\x00"


def codec(format_: Format, send: str, schema_id: int | None = None) -> Callable[[bytes], bytes] | None:
    """Return a function that converts a record's JSON to the bytes to send; None if these are the JSON itself.

    With a schema's number in a registry, Confluent's wire format is used: a zero byte and the number, plus the message
    index for Protobuf. Otherwise Avro uses its single-object encoding, and Protobuf has no prefix.

    Args:
        format_: json, avro or protobuf.
        send: kind of the records: frames, objects or events.
        schema_id: the schema's number.

    Returns:
        The function; it raises ValueError for other kinds of records.

    Raises:
        MissingPackage: the format's package is not installed.
    """
    prefix = b"" if schema_id is None else _MAGIC + schema_id.to_bytes(4, "big")
    if format_ == "json":
        return (lambda body: prefix + body) if prefix else None
    if format_ == "avro":
        encode = avro.encoder(send)
        prefix = prefix or avro.single_object_prefix(send)
    else:
        encode = protobuf.encoder(send)
        prefix += protobuf.message_index(send) if prefix else b""
    return lambda body: prefix + encode(orjson.loads(body))
