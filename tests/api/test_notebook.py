"""What notebooks show of a frame."""

import base64
import json
import re
from html.parser import HTMLParser

import cv2
import numpy as np

import streamkit
from streamkit.api.notebook import MAX_ROWS
from streamkit.core.data import Shown
from streamkit.core.records import line
from streamkit.testing.kit import detections, frames


class Tags(HTMLParser):
    """The tags of a page, and its text by the tag that it is in."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.open = []
        self.texts = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.setdefault(self.open[-1], []).append(data)


def image_of(html):
    data = base64.b64decode(re.search(r'src="data:image/jpeg;base64,([^"]+)"', html)[1])
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def shown(**columns):
    (frame,) = frames(1, width=1280, height=720, pixels=True)
    frame.detections = detections([[320, 180, 960, 540]], [0.75], label=["car"], **columns)
    return frame


def test_a_frame_is_a_small_image_and_a_table():
    html = shown(track_id=[7])._repr_html_()
    tags = Tags(html)
    assert tags.texts["th"] == ["label", "score", "track_id", "box"]
    assert tags.texts["td"] == ["car", "0.75", "7", "320, 180, 960, 540"]
    assert "1280x720, 1 car, 0 events" in tags.texts["div"][0]
    assert image_of(html).shape == (360, 640, 3)


def test_boxes_and_lines_are_drawn_at_their_position():
    frame = shown(track_id=[7])
    drawn = image_of(frame._repr_html_()).astype(int)
    frame.tables = {}
    bare = image_of(frame._repr_html_()).astype(int)
    changed = np.argwhere(np.abs(drawn - bare).max(2) > 50)
    top, left = changed.min(0)
    bottom, right = changed.max(0)
    assert abs(left - 160) <= 4
    assert abs(right - 480) <= 4
    assert abs(bottom - 270) <= 4
    assert 60 < top < 94  # the label is above the box
    frame.shown["gate"] = Shown(((100, 600), (1200, 600)))
    line_only = np.argwhere(np.abs(image_of(frame._repr_html_()).astype(int) - bare).max(2) > 50)
    assert np.abs(line_only[:, 0] - 300).max() <= 4
    assert abs(line_only[:, 1].min() - 50) <= 4
    frame.shown["gate"] = Shown(((0.5, 0.1), (0.5, 0.9)), units="share")
    line_only = np.argwhere(np.abs(image_of(frame._repr_html_()).astype(int) - bare).max(2) > 50)
    assert np.abs(line_only[:, 1] - 320).max() <= 4


def test_all_text_is_escaped():
    (frame,) = frames(1, "<script>alert(1)</script>")
    frame.detections = detections([[0, 0, 1, 1]], label=["<b>&'\""])
    frame._state.stage = "<i>"
    frame.emit("<u>")
    html = frame._repr_html_()
    assert set(Tags(html).tags) == {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert "<b>&'\"" in Tags(html).texts["td"]
    assert "events: <i>.<u>" in Tags(html).texts["div"]


def test_a_table_has_at_most_twenty_rows():
    frame = shown()
    frame.detections = detections([[0, 0, 9, 9]] * (MAX_ROWS + 3), class_id=range(MAX_ROWS + 3))
    for number in range(MAX_ROWS + 2):
        frame.emit(f"e{number}")
    html = frame._repr_html_()
    assert Tags(html).tags.count("tr") == 1 + MAX_ROWS + 1
    assert "3 more" in Tags(html).texts["td"]
    assert html.count(".e") == MAX_ROWS
    assert " and 2 more" in html
    (full,) = frames(1)
    for number in range(MAX_ROWS):
        full.emit(f"e{number}")
    assert " more" not in full._repr_html_()


def test_objects_are_shown_as_a_table():
    html = detections([[1, 2, 30, 40]], [0.5], label=["<b>"], track_id=[7])._repr_html_()
    tags = Tags(html)
    assert tags.texts["td"] == ["<b>", "0.5", "7", "1, 2, 30, 40"]
    assert tags.texts["div"][0].startswith("Detections(1 rows: 1 <b>;")
    many = detections([[0, 0, 9, 9]] * (MAX_ROWS + 3))._repr_html_()
    assert Tags(many).texts["td"][-1] == "3 more"
    full = detections([[0, 0, 9, 9]] * MAX_ROWS)._repr_html_()
    assert Tags(full).tags.count("tr") == 1 + MAX_ROWS  # and no "0 more"
    assert Tags(detections([])._repr_html_()).tags == ["div"]


def test_a_frame_without_pixels_or_objects_is_a_line():
    (frame,) = frames(1)
    assert Tags(frame._repr_html_()).tags == ["div"]


def test_a_real_frame_has_its_image():
    frame = next(streamkit.run("samples/street.mp4", model="demo", device="cpu", limit=1))
    html = frame._repr_html_()
    assert image_of(html).shape == (360, 640, 3)
    assert len(html) < 150_000


def test_a_record_equals_that_of_jsonl():
    frame = shown(track_id=[7])
    assert frame.record() == json.loads(line(frame))
