# SPDX-License-Identifier: Apache-2.0
"""A packet that another process has read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from streamkit.media.bitstream import start_codes

KEYFRAME = 1
DISCARD = 2
CORRUPT = 4
"""Flags of a packet."""
NO_TICKS = -(2**63)
"""Stands for an unknown time."""
EXTRADATA: Literal["new_extradata"] = "new_extradata"
"""The kind of side data that is kept: new parameters of the codec."""


class ReceivedPacket:
    """What decoders read of an `av.Packet`, without FFmpeg's allocations, each of which releases the GIL.

    Args:
        data: its bytes, writable.
        address: their address.
        pts, dts: presentation and decoding time in ticks; `NO_TICKS` if unknown.
        flags: of `KEYFRAME`, `DISCARD` and `CORRUPT`.
        base: a tick in seconds.
        extradata: new parameters of the codec from this packet on; empty if there are none.

    Attributes:
        data, address: see above.
        size: number of bytes.
        pts, dts: the same times; None if unknown.
        is_keyframe, is_discard, is_corrupt: as those of an `av.Packet`.
        extradata: see above.
    """

    __slots__ = (
        "_base",
        "address",
        "data",
        "dts",
        "extradata",
        "is_corrupt",
        "is_discard",
        "is_keyframe",
        "pts",
        "size",
    )

    def __init__(
        self, data: memoryview, address: int, pts: int, dts: int, flags: int, base: Fraction, extradata: bytes
    ) -> None:
        self.data = data
        self.address = address
        self.size = len(data)
        self.pts = None if pts == NO_TICKS else pts
        self.dts = None if dts == NO_TICKS else dts
        self.is_keyframe = flags & KEYFRAME == KEYFRAME
        self.is_discard = flags & DISCARD == DISCARD
        self.is_corrupt = flags & CORRUPT == CORRUPT
        self._base = base
        self.extradata = extradata

    def rewrite(self) -> bool:
        """Replace the lengths of its NAL units by start codes, in place; return False if they are inconsistent."""
        return not self.extradata and start_codes(self.data)

    def av_packet(self) -> Any:
        """The same as an `av.Packet`, except for the discard flag, which cannot be set."""
        import av

        packet = av.Packet(bytes(self.data))
        packet.pts = self.pts
        packet.dts = self.dts
        packet.time_base = self._base
        packet.is_keyframe = self.is_keyframe
        packet.is_corrupt = self.is_corrupt
        if self.extradata:
            packet.set_sidedata(_extradata_of(self.extradata))
        return packet


def _extradata_of(data: bytes) -> Any:
    from av.packet import PacketSideData, packet_sidedata_type_from_literal

    side_data: Any = PacketSideData(packet_sidedata_type_from_literal(EXTRADATA), len(data))  # type: ignore[call-arg]
    side_data.update(data)
    return side_data
