# SPDX-License-Identifier: Apache-2.0
"""Functions and errors for plugins. Plugins import from `streamkit` and from here only: both stay stable."""

from streamkit.core.errors import ConfigError, OutputError, SourceError, StreamkitError
from streamkit.models.families.plugin import family
from streamkit.ops.boxes import iou_matrix
from streamkit.ops.color import rgb

__all__ = ["ConfigError", "OutputError", "SourceError", "StreamkitError", "family", "iou_matrix", "rgb"]
