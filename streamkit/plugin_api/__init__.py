# SPDX-License-Identifier: Apache-2.0
"""Functions and errors for plugins. Plugins import from `streamkit` and from here only: both stay stable."""

from streamkit.core.errors import ConfigError, OutputError, SourceError, StreamkitError
from streamkit.models.families.plugin import family
from streamkit.ops.boxes import iou_matrix
from streamkit.ops.color import rgb
from streamkit.tracking.plugin import best_pairs, tracker
from streamkit.tracking.settings import TrackerSettings
from streamkit.tracking.tracker import CameraMotion, Tracker, TrackerDetections, TrackerFrame

__all__ = [
    "CameraMotion",
    "ConfigError",
    "OutputError",
    "SourceError",
    "StreamkitError",
    "Tracker",
    "TrackerDetections",
    "TrackerFrame",
    "TrackerSettings",
    "best_pairs",
    "family",
    "iou_matrix",
    "rgb",
    "tracker",
]
