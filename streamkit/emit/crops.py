# SPDX-License-Identifier: Apache-2.0
"""Image crops of sent objects: `crop` in each record, a JPEG as base64."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Frame
from streamkit.core.units import Count, OptionGroup, Score
from streamkit.emit.segment_file import SpoolRecord
from streamkit.io.still_images import CropRequest, JpegQuality, cut_out, jpegs, on_device, parts_of

SENT = "crops sent"
WITHOUT = "records without a crop: object outside the frame"


class Cropped(OptionGroup, total=False):
    """Options of crops.

    Keys:
        pad: margin on each side as a share of the box; 0.1 if not set.
        max_size: maximum pixels of the longer side; 256 if not set.
        quality: JPEG quality, 1 to 100; 80 if not set.
        show_hidden: allow crops to show what another stage of the pipeline hides.
    """

    pad: Score
    max_size: Count
    quality: JpegQuality
    show_hidden: bool


class _CropByForm:
    """Option annotation: the value's form selects the type, so that one mistake gives one problem."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        schemas = {"<yes>": handler.generate_schema(bool), "<crops>": handler.generate_schema(Cropped)}
        return core_schema.tagged_union_schema(
            schemas, discriminator=lambda value: "<crops>" if isinstance(value, Mapping) else "<yes>"
        )


Crops = Annotated[bool | Cropped, _CropByForm()]
"""Whether records have crops, or the options of the crops."""


class Cropper:
    """Cuts out the crops of all records of a batch at once: on a GPU in one launch and one copy to the host.

    Args:
        asked: true, or options of the crops.
    """

    def __init__(self, crops: Literal[True] | Cropped) -> None:
        options: Cropped = {} if crops is True else crops
        self._pad = options.get("pad", 0.1)
        self._max_size = options.get("max_size", 256)
        self._quality = options.get("quality", 80)
        self._parts: dict[int, CropRequest | None] = {}

    def add(self, index: int, frame: Frame, box: Sequence[float] | None) -> None:
        """Request a crop for a record.

        Args:
            index: the record's index in the list given to `fill`.
            frame: the frame.
            box: x1, y1, x2, y2 in source pixels; None if the record's object is not on the frame.
        """
        self._parts[index] = None if box is None else parts_of(frame, np.array([box]), self._pad)[0]

    def fill(self, records: list[SpoolRecord], counters: Counters) -> None:
        """Insert the crops into records whose bodies end with the closing braces of the object and the record."""
        requested = self._parts
        self._parts = {}
        parts = {index: part for index, part in requested.items() if part is not None}
        stills = cut_out(list(parts.values()), self._max_size)
        if stills and on_device(stills[0]):
            counters.add("crops to host", len(stills))
        for index, jpeg in zip(parts, jpegs(stills, self._max_size, self._quality), strict=True):
            record = records[index]
            records[index] = record._replace(body=b'%b,"crop":"%b"}}' % (record.body[:-2], b64encode(jpeg)))
        if parts:
            counters.add(SENT, len(parts))
        if len(requested) > len(parts):
            counters.add(WITHOUT, len(requested) - len(parts))
