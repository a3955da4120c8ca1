"""What a record's JSON becomes on its way to a broker: another format, and what goes before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import orjson

from streamkit.formats import avro, protobuf

Format = Literal["json", "avro", "protobuf"]

_MAGIC = b"\x00"


def codec(format_: Format, send: str, schema_id: int | None = None) -> Callable[[bytes], bytes] | None:
    """What makes of a record's JSON the bytes that are sent; None where that is the JSON itself.

    With a schema's number in a registry, Confluent's wire format goes before it: a zero byte and the number, and for
    Protobuf which message it is. Without, Avro is in its single-object encoding, and Protobuf goes alone.

    Args:
        format_: json, avro or protobuf.
        send: what the records are of: frames, objects or events.
        schema_id: the number.

    Returns:
        the function; it raises ValueError for a record of another kind.

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
