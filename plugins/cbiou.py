# SPDX-License-Identifier: Apache-2.0
"""A tracker: C-BIoU of Yang et al., "Hard to Track Objects with Irregular Motions and Similar Appearances?", 2023."""

from types import SimpleNamespace

import numpy as np

from streamkit.plugin_api import best_pairs, iou_matrix, tracker

MARGINS = (0.1, 0.3)  # around a box in the two rounds, in shares of its width and height
HISTORY = 10  # detections over which the motion is averaged


class Track(SimpleNamespace):
    """An object: its class_id, first_s, id (0 until it is confirmed) and history of times in seconds and boxes."""

    def expected(self, time_s):
        """The last box, moved by the mean motion."""
        first_s, first = self.history[0]
        last_s, last = self.history[-1]
        return last + (last - first) * (time_s - last_s) / max(last_s - first_s, 1e-9)

    def move(self, camera):
        """Move the boxes as the camera moves the picture."""
        times_s, boxes = zip(*self.history, strict=True)
        self.history = list(zip(times_s, camera.moved(np.array(boxes)), strict=True))


@tracker("cbiou", camera_motion="auto")
class CBIoU:
    """Match boxes with margins, in two rounds, for objects that move irregularly."""

    def __init__(self, settings):
        self.settings = settings
        self.tracks = []
        self.previous_s = None

    def update(self, objects, frame):
        """Return the track of each object."""
        if frame.camera is not None:
            for track in self.tracks:
                if track.history[-1][0] < self.previous_s or not frame.camera.since_earlier:
                    track.move(frame.camera)
        self.previous_s = frame.time_s
        self.tracks = [t for t in self.tracks if frame.time_s - t.history[-1][0] <= self.settings.track_ttl_s]
        track_of = self.match(objects, frame.time_s)
        ids = np.full(len(objects.box), -1)
        for i in np.flatnonzero((track_of >= 0) | (objects.score >= self.settings.new_score)):
            if track_of[i] < 0:
                self.tracks.append(Track(class_id=objects.class_id[i], first_s=frame.time_s, id=0, history=[]))
            track = self.tracks[track_of[i]]  # -1 is the new one
            track.history = [*track.history[1 - HISTORY :], (frame.time_s, objects.box[i])]
            if track.id == 0 and frame.time_s - track.first_s >= self.settings.confirm_s:
                track.id = max(frame.last_id, ids.max()) + 1
            ids[i] = track.id or -1
        self.tracks = [t for t in self.tracks if t.id or t.history[-1][0] == frame.time_s]
        return ids

    def match(self, objects, time_s):
        """Return the place of each object's track in `tracks`; -1 without one."""
        expected = np.array([track.expected(time_s) for track in self.tracks]).reshape(-1, 4)
        track_of = np.full(len(objects.box), -1)
        for margin in MARGINS:
            gain = iou_matrix(*(boxes + margin * (boxes - boxes[:, [2, 3, 0, 1]]) for boxes in (objects.box, expected)))
            gain[(objects.score < self.settings.high_score) | (track_of >= 0)] = 0
            gain[:, track_of[track_of >= 0]] = 0
            if self.settings.class_aware:
                gain[objects.class_id[:, None] != np.array([track.class_id for track in self.tracks], int)] = 0
            track_of = np.maximum(track_of, best_pairs(gain - self.settings.min_iou))
        return track_of
