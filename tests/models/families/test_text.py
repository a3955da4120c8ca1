"""Families that read text: greedy decoding, where the classes are, logits or probabilities, and what does not fit."""

import numpy as np
import pytest

from streamkit.models.families import family

ABC = ("a", "b", "c")


def hot(*classes, count=4, sure=0.9):
    """Probabilities (1, T, count) with one likely class at each place."""
    probabilities = np.full((1, len(classes), count), (1 - sure) / (count - 1), np.float32)
    probabilities[0, np.arange(len(classes)), list(classes)] = sure
    return probabilities


def read(name, output, blank=0, alphabet=ABC, allowed=None):
    reads = family(name)
    best = reads.best({"y": output}, len(alphabet), blank, allowed)
    assert best.shape[2] == 4
    readings = [reads.decode(image, alphabet, blank) for image in best]
    return [("".join(reading.text), reading.scores) for reading in readings]


def test_ctc_joins_equal_neighbors_and_drops_the_blank():
    ((text, scores),) = read("ctc", hot(0, 1, 1, 0, 1, 2, 2, 3, 0))
    assert text == "aabc"
    assert scores == pytest.approx((0.9,) * 4)


def test_slots_retain_equal_neighbors_and_drop_the_padding():
    ((text, _),) = read("slots", hot(0, 0, 1, 2, 3, 3), blank=-1)
    assert text == "aabc"
    ((flat, _),) = read("slots", hot(0, 0, 1, 2, 3, 3).reshape(1, -1), blank=3)
    assert flat == "aabc"


def margin(name, *rows, blank=0):
    reads = family(name)
    output = np.array([rows], np.float32)
    (image,) = reads.best({"y": output}, 3, blank)
    return reads.decode(image, ABC, blank).margin


CLEAR_A = [0.0, 1.0, 0.0, 0.0]
CLEAR_BLANK = [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([CLEAR_A, CLEAR_BLANK], 1.0),
        ([CLEAR_A, [0.6, 0.0, 0.3, 0.1]], 0.3),  # ab is the second-best text
        ([[0.0, 0.5, 0.4, 0.1], CLEAR_BLANK], 0.1),  # b
        ([[0.45, 0.55, 0.0, 0.0], CLEAR_A], 1.0),  # a all the same: it only begins one place later
        ([CLEAR_A, [0.45, 0.55, 0.0, 0.0]], 1.0),
        ([CLEAR_A, [0.55, 0.45, 0.0, 0.0], CLEAR_A], 0.1),  # a in place of aa
        ([CLEAR_BLANK, CLEAR_BLANK], 1.0),
    ],
)
def test_the_margin_of_ctc_is_that_to_the_second_best_text(places, expected):
    assert margin("ctc", *places) == pytest.approx(expected, abs=1e-6)


def test_the_margin_of_slots_is_that_to_the_second_best_text():
    assert margin("slots", CLEAR_A, [0.0, 0.55, 0.45, 0.0], CLEAR_BLANK) == pytest.approx(0.1, abs=1e-6)
    assert margin("slots", CLEAR_A, [0.55, 0.45, 0.0, 0.0]) == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("blank", [0, 2, 3, -1])
def test_the_blank_may_be_any_class(blank):
    order = [1, 2, 3]
    place = blank % 4
    classes = [i for i in range(4) if i != place]
    output = hot(*[classes[i - 1] for i in order], place)
    assert read("ctc", output, blank)[0][0] == "abc"


def test_logits_and_probabilities_have_the_same_scores():
    output = hot(0, 1, 2, sure=0.7)
    logits = np.log(output) + 3.5
    for values in (output, logits, output.astype(np.float16)):
        ((text, scores),) = read("ctc", values)
        assert text == "ab"
        assert scores == pytest.approx((0.7, 0.7), abs=2e-3)


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_an_image_with_invalid_scores_does_not_affect_the_others(broken):
    output = np.concatenate([hot(0, 1, 2, sure=0.7), np.full((1, 3, 4), broken, np.float32)])
    (text, scores), (_, none) = read("ctc", output)
    assert text == "ab"
    assert scores == pytest.approx((0.7, 0.7))
    assert set(none) <= {0.0}


def test_the_class_axis_may_come_before_the_positions():
    output = np.concatenate([hot(0, 1, 2, 3, 0, 0), hot(3, 3, 0, 3, 0, 1)])
    assert [text for text, _ in read("ctc", output.transpose(0, 2, 1))] == ["abc", "cca"]


def test_an_excluded_character_is_replaced_by_the_next_best():
    output = hot(1, 0, 2)
    output[0, 0] = [0.05, 0.6, 0.1, 0.25]
    ((text, scores),) = read("ctc", output, allowed=[1, 2])
    assert text == "cb"
    assert scores[0] == pytest.approx(0.25)


def test_the_score_is_the_mean_of_the_characters():
    from streamkit.models.families.text import Reading

    assert Reading(("a", "b"), (0.5, 0.9)).score == pytest.approx(0.7)
    assert Reading((), ()).score == 0.0


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        (
            "ctc",
            {"y": ["N", 40, 38]},
            r"so 40 or 38 classes, and the alphabet has 3 characters, with the blank 4 classes",
        ),
        ("ctc", {"y": ["N", 4]}, r"reads one output \(N, T, C\)"),
        ("slots", {"y": ["N", 9]}, r"so 9 classes, and the alphabet has 3 characters"),
    ],
)
def test_an_alphabet_of_the_wrong_size_is_refused(name, shapes, message):
    with pytest.raises(ValueError, match=message):
        family(name).check(shapes, 3)


def test_other_outputs_are_ignored_and_open_sizes_are_accepted():
    family("slots").check({"region": ["N", 66], "plate": ["N", 9, 4]}, 3)
    family("ctc").check({"y": ["N", "T", "C"]}, 3)
    family("ctc").check({"y": ["N", 4, 40]}, 3)


@pytest.mark.gpu
def test_the_device_reads_the_same_text():
    import cupy

    rng = np.random.default_rng(2)
    for name in ("ctc", "slots"):
        output = rng.normal(0, 3, (5, 20, 4)).astype(np.float32)
        expected = family(name).best({"y": output}, 3, 0, [0, 2])
        on_device = family(name).best({"y": cupy.asarray(output)}, 3, 0, [0, 2]).get()
        assert np.array_equal(on_device[..., 0], expected[..., 0])
        np.testing.assert_allclose(on_device[..., 1], expected[..., 1], atol=1e-6)
