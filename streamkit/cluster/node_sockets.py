# SPDX-License-Identifier: Apache-2.0
"""Opens WebSockets of nodes."""

from __future__ import annotations

from typing import Any

from streamkit.cluster.ray_nodes import NodeHandle

_ANSWER_S = 30.0


def connected(node: NodeHandle, path: str) -> Any:
    """An open WebSocket of a node, as a context manager."""
    from websockets.asyncio.client import connect

    return connect(
        node.url.replace("http", "ws", 1) + path, additional_headers={"authorization": f"Bearer {node.token}"},
        max_size=None, compression=None, proxy=None, open_timeout=_ANSWER_S,
    )  # fmt: skip
