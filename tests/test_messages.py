import pytest

from streamkit.messages import did_you_mean


@pytest.mark.parametrize(
    ("word", "known", "all_if_few", "text"),
    [
        ("min_scor", ["min_score", "iou"], False, "; did you mean 'min_score'?"),
        ("zebra", ["min_score", "iou"], False, ""),
        ("zebra", ["min_score", "iou"], True, "; known: min_score, iou"),
        ("x", [], True, ""),
    ],
)
def test_did_you_mean(word, known, all_if_few, text):
    assert did_you_mean(word, known, all_if_few) == text
