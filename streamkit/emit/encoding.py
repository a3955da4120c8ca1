"""Wraps a client, to send records in another format than JSON; they are converted when they leave the spool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streamkit.emit.client import Client, Lost, Message


class EncodingClient(Client):
    """Passes records to another client in another format.

    Args:
        client: the client that sends them.
        encode: converts a record's JSON; a ValueError means that it has no such form, and the record is rejected.
    """

    def __init__(self, client: Client, encode: Callable[[bytes], bytes]) -> None:
        self._client, self._encode = client, encode
        self.where, self.secrets, self.gather_s = client.where, client.secrets, client.gather_s

    def connect(self) -> None:
        """See `Client.connect`."""
        client = self._client
        client.timeout_s, client.over, client.say = self.timeout_s, self.over, self.say
        client.connect()

    def deliver(self, messages: Sequence[Message]) -> Mapping[int, str]:
        """See `Client.deliver`."""
        made: list[Message] = []
        places: list[int] = []  # of what was made, among `messages`
        refused: dict[int, str] = {}
        for place, one in enumerate(messages):
            try:
                made.append(one._replace(body=self._encode(one.body)))
                places.append(place)
            except ValueError as error:
                refused[place] = f"it cannot be put into the format: {error}"
        try:
            more = self._client.deliver(made) if made else None
        except Lost as error:
            error.done = min([*refused, *places[error.done :]], default=len(messages))
            raise
        return {**refused, **{places[i]: why for i, why in (more or {}).items()}}

    def idle(self) -> None:
        """See `Client.idle`."""
        self._client.idle()

    def close(self) -> None:
        """See `Client.close`."""
        self._client.close()
