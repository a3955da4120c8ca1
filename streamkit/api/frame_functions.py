# SPDX-License-Identifier: Apache-2.0
"""The implementation of `core.delegation.FrameFunctions`, from all layers."""

from streamkit.api.notebook import html, table_html
from streamkit.api.table_export import to_pandas, to_supervision, to_supervision_keypoints
from streamkit.core.records import record
from streamkit.ops.tensors import image, nv12_planes, rgb_tensor

__all__ = [
    "html",
    "image",
    "nv12_planes",
    "record",
    "rgb_tensor",
    "table_html",
    "to_pandas",
    "to_supervision",
    "to_supervision_keypoints",
]
