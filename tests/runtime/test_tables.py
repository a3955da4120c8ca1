"""Branches that meet: what each says of the whole frame."""

from streamkit.data import Batch
from streamkit.runtime.tables import merge_batches
from streamkit.testing import frames


def test_what_branches_say_of_a_frame_stands_side_by_side():
    whole = Batch(frames(2))
    first, second = whole.fork(), whole.fork()
    first.frames[0].facts["attributes"] = {"scene": {"label": "street", "score": 0.5}}
    second.frames[0].facts["attributes"] = {"weather": {"label": "rain", "score": 0.9}}
    second.frames[1].facts["segmentation"] = {"road": "..."}
    met = merge_batches([first, second])
    assert met.frames[0].facts["attributes"] == {
        "weather": {"label": "rain", "score": 0.9},
        "scene": {"label": "street", "score": 0.5},
    }
    assert met.frames[1].facts == {"segmentation": {"road": "..."}}
    assert whole.frames[0].facts == {}
