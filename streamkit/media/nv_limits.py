# SPDX-License-Identifier: Apache-2.0
"""How many NVDEC sessions a GPU opens at once, for all processes together; the driver does not say.

`nv_sessions` learns the limit of a GPU that is not listed here when the driver refuses a session.
"""

from __future__ import annotations

SESSIONS = {"NVIDIA H200": 286}
"""By the name of the GPU. Measured with the row `load-hevc` of `bench gpu`, 288 sources, on 26 November 2026
(docs/figures/2026-11-26-h200.json): the driver refused the 287th session with error 2 of `cuvidCreateDecoder`."""


def session_limit(name: str | None) -> int | None:
    """The limit of a GPU by its name as the driver gives it; None if it was not measured."""
    return None if name is None else SESSIONS.get(name)
