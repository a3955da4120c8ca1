"""Actions: clips against a plain loop, what clears them, labels and events, memory."""

import dataclasses
import itertools
import logging

import numpy as np
import onnxruntime
import pytest
from support.clip_networks import SIZE, color, convolution

from streamkit.core.errors import ModelError
from streamkit.core.records import record
from streamkit.core.units import Of
from streamkit.models import reference
from streamkit.ops.boxes import crop_rects
from streamkit.stages.inference.action import Action
from streamkit.testing.kit import detections, frames, run_stage

WINDOW = 4
BOXES = ([4, 4, 40, 30], [30, 10, 70, 44])
PIXELS = {
    "red": (200, 10, 10),
    "green": (10, 200, 10),
    "blue": (10, 10, 240),
    "gray": (90, 90, 90),
}


def noise(count, source="test", seed=0, step_s=0.1, channels=3):
    """Frames of random blocks and brightness, each with two tracked persons; gray with one channel."""
    random = np.random.default_rng(seed)
    video = []
    for index in range(count):
        blocks = random.integers(0, 256, (6, 10, channels)) * random.uniform(0.2, 1, channels)
        rgb = np.broadcast_to(np.repeat(np.repeat(blocks, 8, axis=0), 8, axis=1), (48, 80, 3)).astype(np.uint8)
        (frame,) = frames(1, source, pixels=rgb, start=index, step_s=step_s)
        frame.tables = {"detect": detections(BOXES, track_id=[7, 9], label=["person", "person"])}
        video.append(frame)
    return video


def film(colors, source="test", step_s=0.1, tracks=(7,)):
    """A frame of each of these colors, with tracked objects."""
    video = []
    for index, name in enumerate(colors):
        rgb = np.full((48, 80, 3), PIXELS[name], np.uint8)
        (frame,) = frames(1, source, pixels=rgb, start=index, step_s=step_s)
        boxes = BOXES[: len(tracks)]
        frame.tables = {"detect": detections(boxes, track_id=list(tracks), label=["person"] * len(tracks))}
        video.append(frame)
    return video


def plain_probabilities(card, pictures, order):
    """The probabilities of one clip by OpenCV and ONNX Runtime: RGB pictures of 0 to 255, in order."""
    import cv2

    rows = [cv2.resize(rgb, SIZE, interpolation=cv2.INTER_LINEAR).transpose(2, 0, 1) / 255 for rgb in pictures]
    clip = (np.stack(rows).astype(np.float32) - np.float32(0.45)) / np.float32(0.225)
    axes = {"tchw": (0, 1, 2, 3), "cthw": (1, 0, 2, 3), "thwc": (0, 2, 3, 1)}[order]
    session = onnxruntime.InferenceSession(card.file, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return session.run(None, {name: np.ascontiguousarray(clip.transpose(axes)[None])})[0][0]


def plain_answers(card, video, order, *, stride, every, rect=None):
    """What a loop over the frames of one source answers: by frame, label and score of the clips that end there."""
    chosen = video[::stride]
    answers = {}
    judged_s = -np.inf
    for last in range(WINDOW - 1, len(chosen)):
        if chosen[last].pts_s - judged_s < every:
            continue
        judged_s = chosen[last].pts_s
        pictures = [reference.rgb(frame.surface, frame.width, frame.height) for frame in chosen[last - 3 : last + 1]]
        if rect is not None:
            left, top, right, bottom = rect
            pictures = [picture[top:bottom, left:right] for picture in pictures]
        probabilities = plain_probabilities(card, pictures, order)
        answers[chosen[last].index] = card.labels[int(probabilities.argmax())], float(probabilities.max())
    return answers


def answers_of(video, track=None, name="action"):
    """By frame, label and score of the attribute; frames without one are left out."""
    values = {}
    for frame in video:
        row = record(frame)
        if track is not None:
            (row,) = [row_of_object for row_of_object in row["objects"] if row_of_object["track_id"] == track]
        attributes = row.get("attributes", {})
        if name in attributes:
            values[frame.index] = attributes[name]["label"], attributes[name]["score"]
    return values


def events_of(video):
    return [(frame.index, event.kind, event.data["action"]) for frame in video for event in frame.events]


def assert_equal_answers(answers, expected):
    """Between two clips the last answer holds."""
    assert min(answers) == min(expected)
    for index, (label, score) in answers.items():
        wanted = expected[max(end for end in expected if end <= index)]
        assert (label, score) == (wanted[0], pytest.approx(wanted[1], abs=2e-3))


def run(card, video, batch=4, **options):
    return run_stage(Action(**{"model": card, "min_score": 0.0, **options}), video, batch=batch)


@pytest.mark.parametrize(
    ("order", "fixed"), [("tchw", True), ("tchw", False), ("cthw", True), ("cthw", False), ("thwc", True)]
)
def test_whole_frames_equal_a_plain_loop(tmp_path, order, fixed):
    card = convolution(tmp_path, order, frames=WINDOW if fixed else None, batch=1 if fixed else "N")
    video = noise(30)
    expected = plain_answers(card, video, order, stride=2, every=0.5)
    assert len({label for label, _ in expected.values()}) > 1
    processed = run(card, video, stride=2, every=0.5, window=None if fixed else WINDOW)
    assert_equal_answers(answers_of(processed), expected)


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_tracks_equal_a_plain_loop_in_batches_of_any_size(tmp_path, batch):
    card = convolution(tmp_path, "cthw")
    streets = [noise(20, source, seed, channels=1) for source, seed in (("a", 1), ("b", 2))]
    mixed = [frame for pair in zip(*streets, strict=True) for frame in pair]
    processed = run(card, mixed, batch, of=Of("detect"), stride=1, every=0.0)
    rects = crop_rects(np.array(BOXES, np.float32), np.array([[80, 48]] * 2), 0.0).tolist()
    by_source = zip("ab", streets, strict=True)
    for (source, video), (track, rect) in itertools.product(by_source, zip((7, 9), rects, strict=True)):
        expected = plain_answers(card, video, "cthw", stride=1, every=0.0, rect=rect)
        answers = answers_of([frame for frame in processed if frame.source == source], track)
        assert len(answers) == 17
        assert_equal_answers(answers, expected)


def test_the_label_is_an_attribute_until_the_next_clip_and_has_events(tmp_path):
    processed = run(color(tmp_path), film(["red"] * 15 + ["blue"] * 10), of=Of("detect"), stride=1, every=0.5)
    assert answers_of(processed, 7)[3] == ("red", pytest.approx(1, abs=0.05))
    first, second, third = [event for frame in processed for event in frame.events]
    assert (first.kind, first.track_id, first.frame) == ("started", 7, 3)
    assert first.data == {"action": "red", "score": pytest.approx(1, abs=0.05), "since_s": 0.3, "label": "person"}
    assert (second.kind, second.frame, third.kind, third.frame) == ("ended", 18, "started", 18)
    assert second.data == {"action": "red", "lasted_s": pytest.approx(1.5), "label": "person"}
    assert third.data["action"] == "blue"


def test_debounce_skips_labels_of_single_clips(tmp_path):
    card = color(tmp_path)
    flicker = film(["red"] * 8 + ["blue"] * 4 + ["red"] * 8)
    assert events_of(run(card, flicker, stride=1, every=0.0))[1:] == [
        (9, "ended", "red"),
        (9, "started", "blue"),
        (14, "ended", "blue"),
        (14, "started", "red"),
    ]
    held = run(card, flicker, stride=1, every=0.0, debounce=0.5)
    assert events_of(held) == [(8, "started", "red")]
    assert held[8].events[0].data["since_s"] == 0.3


def test_a_score_below_min_score_and_a_label_that_is_not_reported_give_none(tmp_path):
    card = color(tmp_path)
    video = film(["red"] * 6 + ["gray"] * 6 + ["blue"] * 6)
    assert events_of(run(card, video, stride=1, every=0.0, min_score=0.6)) == [
        (3, "started", "red"),
        (9, "ended", "red"),
        (12, "started", "blue"),
    ]
    assert events_of(run(card, video, stride=1, every=0.0, min_score=0.6, labels=["blue"])) == [(12, "started", "blue")]


def pause(video):
    for frame in video[6:]:
        frame.pts_s += 3.0


def restart(video):
    for frame in video[6:]:
        frame._state.epoch = 1


def jump_back(video):
    for frame in video[6:]:
        frame.pts_s -= 0.4


def lose_the_track(video):
    for frame in video:
        frame.pts_s *= 10
    for frame in video[6:9]:
        frame.tables = {"detect": detections(labels=("person",), track_id=[])}


@pytest.mark.parametrize(("change", "first"), [(pause, 9), (restart, 9), (jump_back, 9), (lose_the_track, 12)])
@pytest.mark.parametrize("batch", [1, 32])
def test_a_gap_clears_the_clip_and_ends_the_label(tmp_path, change, first, batch):
    video = film(["red"] * 6 + ["blue"] * 12)
    change(video)
    processed = run(color(tmp_path), video, batch, of=Of("detect"), stride=1, every=0.0)
    answers = answers_of([frame for frame in processed if len(frame.detections)], 7)
    assert min(index for index in answers if index >= 6) == first
    assert answers[first][0] == "blue"
    ended = [event for frame in processed for event in frame.events if event.kind == "ended"]
    assert [event.data["action"] for event in ended] == ["red"]
    assert ended[0].data["lost"] is True


def test_a_track_that_is_missed_for_a_moment_keeps_its_clip(tmp_path):
    video = film(["red"] * 8)
    video[4].tables = {"detect": detections(labels=("person",), track_id=[])}
    processed = run(color(tmp_path), video, of=Of("detect"), stride=2, every=0.0)
    assert [index for index, _, _ in events_of(processed)] == [7]


def test_a_window_longer_than_the_file_is_said(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    run(color(tmp_path), film(["red"] * 12), stride=4)
    assert "no clip of test was complete: 4 frames at stride 4 take 13 frames of video in a row" in caplog.text
    assert "the longest clip got 3 of the 4; take a smaller stride" in caplog.text
    caplog.clear()
    run(color(tmp_path), film(["red"] * 13), stride=4)
    assert not caplog.text


def test_tracks_beyond_the_memory_are_skipped_and_counted(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    ring_bytes = WINDOW * 3 * SIZE[0] * SIZE[1] * 4
    stage = Action(model=color(tmp_path), of=Of("detect"), stride=1, max_memory=ring_bytes)
    video = film(["red"] * 8, tracks=(7, 9))
    processed = run_stage(stage, video)
    assert answers_of(processed, 7)
    assert not answers_of(processed, 9)
    assert caplog.text.count("the frames of clips take max_memory") == 1


def test_memory_is_free_when_a_track_or_a_source_ends(tmp_path):
    card = color(tmp_path)
    ring_bytes = WINDOW * 3 * SIZE[0] * SIZE[1] * 4
    early = film(["red"] * 6, tracks=(7,))
    late = film(["red"] * 36, tracks=(9,))[30:]
    tracks = run(card, [*early, *late], 3, of=Of("detect"), stride=1, every=0.0, max_memory=ring_bytes)
    assert len(answers_of(tracks[6:], 9)) == 3
    sources = [*film(["red"] * 6, "a"), *film(["red"] * 6, "b")]
    processed = run(card, sources, 3, stride=1, every=0.0, max_memory=ring_bytes)
    assert len(answers_of(processed[6:])) == 3
    shared = [frame for pair in zip(*(film(["red"] * 6, name) for name in "ab"), strict=True) for frame in pair]
    processed = run(card, shared, 3, stride=1, every=0.0, max_memory=ring_bytes)
    assert not answers_of([frame for frame in processed if frame.source == "b"])


def test_outputs_that_are_not_finite_give_no_label(tmp_path):
    card = color(tmp_path, gain=float("nan"))
    processed = run(card, film(["red"] * 8), stride=1, every=0.0)
    assert not answers_of(processed)
    assert not events_of(processed)


def test_a_failed_frame_begins_the_clip_again(tmp_path):
    video = film(["red"] * 6 + ["blue"] * 6)
    video[5].surface = None
    processed = run_stage(Action(model=color(tmp_path), stride=1, every=0.0), video, on_error="skip", batch=3)
    assert processed[5].error
    assert events_of(processed) == [(3, "started", "red"), (9, "ended", "red"), (9, "started", "blue")]


def test_a_source_whose_first_frames_fail_is_no_problem(tmp_path):
    broken = film(["red"] * 6, "b")
    for frame in broken[:2]:
        frame.surface = None
    mixed = [frame for pair in zip(film(["red"] * 6, "a"), broken, strict=True) for frame in pair]
    processed = run_stage(Action(model=color(tmp_path), stride=1, every=0.0), mixed, on_error="skip", batch=2)
    answers = {source: answers_of([frame for frame in processed if frame.source == source]) for source in "ab"}
    assert (sorted(answers["a"]), sorted(answers["b"])) == ([3, 4, 5], [5])


def test_a_window_that_the_network_cannot_take_is_refused(tmp_path):
    card = convolution(tmp_path, frames=None)
    with pytest.raises(ModelError, match=r"cannot be run on clips of 2 frames of 16 x 12: .* set window of the stage"):
        run(card, film(["red"] * 6), window=2)


def test_options_that_do_not_fit_the_network_are_refused(tmp_path):
    fixed = convolution(tmp_path / "fixed")
    open_length = convolution(tmp_path / "open", frames=None)
    with pytest.raises(ValueError, match=r"window is 8, and clips.onnx takes clips of 4; leave it out"):
        Action(model=fixed, window=8)
    with pytest.raises(ValueError, match=r"leaves the number of frames of a clip open: set window"):
        Action(model=open_length)
    with pytest.raises(ValueError, match=r"has no class 'runn'; did you mean 'run'"):
        Action(model=fixed, labels=["runn"])
    with pytest.raises(ValueError, match=r"action needs a card with task: action; clips has task: classify"):
        Action(model=dataclasses.replace(fixed, task="classify"))


PIPELINE = """
sources:
  a: {{uri: {root}/samples/street.mp4, end: 3}}
  b: {{uri: {root}/samples/street.mp4, start: 4, end: 7}}
batch: {batch}
stages:
  action: {{model: {card}, stride: 2, every: 0.2, min_score: 0, run: {{instances: {instances}}}}}
  collect: {{}}
"""


def pipeline_answers(outcome):
    assert outcome.code == 0
    return {
        (source, row["frame"]): row["attributes"]["action"]
        for source, rows in outcome.records.items()
        for row in rows
        if "attributes" in row
    }


def assert_alike(answers, expected, score, share=1.0):
    """Both have the same labels, but for a share where two are close, and the same scores."""
    assert answers.keys() == expected.keys()
    assert len(answers) > 100
    same = [key for key, answer in answers.items() if answer["label"] == expected[key]["label"]]
    assert len(same) >= share * len(answers)
    for key in same:
        assert answers[key]["score"] == pytest.approx(expected[key]["score"], abs=score)


def test_several_workers_and_batches_give_the_answers_of_one(tmp_path, run_pipeline, root):
    card = convolution(tmp_path).path
    alone, several = (
        pipeline_answers(run_pipeline(PIPELINE.format(root=root, card=card, batch=batch, instances=instances)))
        for batch, instances in ((1, 1), (16, 4))
    )
    assert_alike(several, alone, 1e-4)


def test_the_summary_counts_clips_and_those_that_are_too_short(tmp_path, run_pipeline, root):
    text = PIPELINE.format(root=root, card=convolution(tmp_path).path, batch=4, instances=1)
    outcome = run_pipeline(text.replace("stride: 2", "stride: 30"))
    assert outcome.code == 0
    assert outcome.report["counts"]["clips that ended before they were complete"] == 2
    assert "clips inferred" not in outcome.report["counts"]
    assert sum("no clip of" in str(text) for text in outcome.logged) == 2


def test_rules_read_the_label_and_the_events(run_pipeline, root):
    text = f"""
sources: {{a: {{uri: {root}/samples/street.mp4, end: 1}}}}
stages:
  detect: {{model: demo}}
  action: {{model: activity, stride: 1, every: 0.1}}
  rule:
    rules:
      labeled: {{when: frame.action == "moves" or frame.action == "still"}}
      begins: {{when: event(action.started)}}
  collect: {{}}
"""
    outcome = run_pipeline(text)
    assert outcome.code == 0
    events = [event for row in outcome.records["a"] for event in row["events"]]
    assert [event["kind"] for event in events[:3]] == ["started", "raised", "raised"]
    assert {event["data"].get("rule") for event in events[1:3]} == {"labeled", "begins"}


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_answers_without_copies_of_pixels(tmp_path, run_pipeline, root):
    from streamkit.ops import traffic

    text = PIPELINE.format(root=root, card=convolution(tmp_path).path, batch=8, instances=1)
    text = text.replace("stages:", "stages:\n  activity: {stage: action, model: activity}")
    expected = run_pipeline(text)
    before = traffic.so_far()
    outcome = run_pipeline(text, device="cuda")
    copied = np.subtract(traffic.so_far(), before)
    assert_alike(pipeline_answers(outcome), pipeline_answers(expected), 0.02, share=0.95)
    assert outcome.report["counts"].get("pixels to host", 0) == 0
    frames_read = sum(map(len, outcome.records.values()))
    assert copied.sum() / frames_read < 2000  # a frame of a clip alone has 12,288 bytes


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["tchw", "cthw", "thwc"])
def test_tracks_on_a_gpu_have_the_labels_of_the_cpu(tmp_path, run_pipeline, root, order):
    text = f"""
sources: {{a: {{uri: {root}/samples/street.mp4, end: 4}}}}
stages:
  detect: {{model: demo}}
  track: {{}}
  action: {{model: {convolution(tmp_path, order).path}, of: detect.car, stride: 2, every: 0, min_score: 0}}
  collect: {{}}
"""
    outcomes = [run_pipeline(text, device=device) for device in ("cpu", "cuda")]
    labels = [
        {
            (row["frame"], item["track_id"]): item["attributes"]["action"]["label"]
            for row in outcome.records["a"]
            for item in row["objects"]
            if "attributes" in item
        }
        for outcome in outcomes
    ]
    both = labels[0].keys() & labels[1].keys()
    assert len(both) > 50
    assert np.mean([labels[0][key] == labels[1][key] for key in both]) > 0.95
