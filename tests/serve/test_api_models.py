"""Bodies of the API that are made from the pipeline's values."""

from dataclasses import asdict

import pytest

from streamkit.core.data import Event
from streamkit.runtime.preview.gallery import GalleryEvent
from streamkit.serve.event_models import EventView
from streamkit.serve.store.event_table import StoredEvent


@pytest.mark.parametrize("jpeg", [b"jpeg", None])
def test_an_event_has_the_fields_of_the_api(jpeg):
    event = Event("crossed", "line", "gate", 3, 3 / 25, 7, {"direction": "in"})
    assert asdict(EventView.of(StoredEvent.unwritten(GalleryEvent(1, 1.5, event, jpeg)))) == {
        "number": 1,
        "time_s": 1.5,
        "source": "gate",
        "frame": 3,
        "pts_s": 0.12,
        "kind": "crossed",
        "stage": "line",
        "track_id": 7,
        "label": None,
        "text": 'Track 7 crossed the line "line" going in at gate.',
        "data": {"direction": "in"},
        "image": jpeg is not None,
        "clip": False,
        "clip_s": None,
        "snapshot": False,
    }
