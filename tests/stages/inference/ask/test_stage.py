"""`ask` on made-up frames: which questions there are, what is sent, and what becomes of answers."""

import re

import numpy as np
import pytest
from support.messages import collect
from support.sights import BLUE, GREEN, LARGE, RED, SMALL, happen, near, scene

from streamkit.core.data import Surface
from streamkit.core.units import Of, Rate
from streamkit.ops.color import from_rgb
from streamkit.stages.inference.ask.stage import Ask
from streamkit.testing.kit import detections, frames, run_stage


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ask(vlm, footage, batch=4, **options):
    """Run the stage, without threads; return the frames and the counters."""
    common = {"url": vlm.url, "model": "eye-7b", "prompt": "Is this person injured?", "max_backoff": 0.01}
    form = {"injured": "bool", "why": "str"}
    stage = Ask(**{**common, "answer": form, "when": "door.crossed", "after": 0.0, **options})
    processed = run_stage(stage, footage, batch=batch)
    return processed, dict(stage.context.counters.values)


def answered(done):
    return [
        (frame.index, event.track_id, event.data)
        for frame in done
        for event in frame.events
        if event.kind == "answered"
    ]


def middle(image):
    height, width = image.shape[:2]
    return np.median(image[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3], axis=(0, 1))


@pytest.mark.parametrize("batch", [1, 5])
def test_the_best_view_after_an_event_is_sent_once_and_the_answer_is_kept(vlm, batch):
    footage = scene(
        [(SMALL, RED, True), (SMALL, BLUE, True), (LARGE, GREEN, True), (SMALL, RED, True), (SMALL, RED, True)]
    )
    happen(footage[1])
    processed, counts = ask(vlm, footage, batch=batch, after=2.0, pad=0.0)
    (call,) = vlm.calls
    (image,) = call.images
    assert image.shape == (140, 80, 3)
    assert near(middle(image), GREEN)
    assert call.prompt.startswith("Is this person injured?\n\nAnswer with a JSON object")
    ((index, track, data),) = answered(processed)
    assert (index, track) == (3, 7)
    assert data.pop("latency_s") >= 0
    assert data == {
        "answer": {"injured": True, "why": "lies there"},
        "prompt": "Is this person injured?",
        "label": "person",
        "of": {"stage": "door", "kind": "crossed", "frame": 1, "pts_s": 1.0},
    }
    attributes = [list(frame.detections.extra.get("attributes", [None])) for frame in processed]
    expected = {"injured": {"label": "yes", "score": None}, "why": {"label": "lies there", "score": None}}
    assert attributes == [[None]] * 3 + [[expected]] * 2
    assert {name: counts[name] for name in ("ask calls", "questions asked", "questions answered")} == dict.fromkeys(
        ("ask calls", "questions asked", "questions answered"), 1
    )
    assert (counts["ask tokens: prompt"], counts["ask tokens: completion"]) == (100, 7)


def test_images_of_a_strip_are_spread_over_the_time_after_the_event(vlm):
    colors = [RED, GREEN, BLUE, RED, GREEN, BLUE]
    footage = scene([(LARGE, color, False) for color in colors])
    happen(footage[0])
    ask(vlm, footage, after=4.0, images=3)
    assert [tuple(near(middle(image), color) for color in (RED, BLUE, GREEN)) for image in vlm.calls[0].images] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert "The 3 images show moments that follow each other." in vlm.calls[0].prompt


def test_without_when_each_large_track_is_sent_once(vlm):
    footage = scene([((0, 0, 20, 90), RED, True), (LARGE, GREEN, True), (LARGE, GREEN, True), (LARGE, GREEN, True)])
    footage += scene([(LARGE, BLUE, True)] * 2, "yard")
    processed, counts = ask(vlm, footage, when=None, of=Of("detect", ("person",)), batch=1)
    assert sorted((frame.source, frame.index) for frame in processed for event in frame.events) == [
        ("gate", 1),
        ("yard", 0),
    ]
    assert counts["ask calls"] == 2
    assert answered(processed)[0][2]["of"] == {"frame": 1, "pts_s": 1.0}


def test_other_classes_and_predicted_objects_are_not_sent(vlm):
    footage = scene([(LARGE, GREEN, True)] * 3)
    for frame in footage:
        frame.tables["detect"] = frame.tables["detect"].with_columns(predicted=np.array([frame.index < 2]))
        frame._state.stage = "door"
        frame.emit("crossed", 7, label="person")
    processed, counts = ask(vlm, footage, batch=1, of=Of("detect", ("car",)))
    assert (answered(processed), counts) == ([], {})
    processed, counts = ask(vlm, footage, batch=1, of=Of("detect", ("person",)))
    assert [index for index, *_ in answered(processed)] == [2]
    assert counts["questions given up: the object was not seen"] == 2


def test_open_or_answered_questions_are_not_repeated(vlm):
    footage = scene([(LARGE, GREEN, True)] * 8)
    for at in (0, 1, 4, 6):
        happen(footage[at])
    processed, counts = ask(vlm, footage, batch=1, after=2.0)
    assert [(index, data.get("cached", False)) for index, _, data in answered(processed)] == [
        (2, False),
        (4, True),
        (6, True),
    ]
    assert (counts["questions merged: already open"], counts["questions answered from cache"]) == (1, 2)
    assert len(vlm.calls) == 1
    vlm.calls.clear()
    processed, _ = ask(vlm, footage, batch=1, ask_again=3.0)
    assert [(index, data.get("cached", False)) for index, _, data in answered(processed)] == [
        (0, False),
        (1, True),
        (4, False),
        (6, True),
    ]
    assert len(vlm.calls) == 2


def test_a_track_after_a_long_absence_counts_as_new(vlm):
    footage = [*scene([(LARGE, GREEN, True)]), *scene([None] * 5)[1:], *scene([(LARGE, GREEN, True)] * 6)[5:]]
    processed, _ = ask(vlm, footage, batch=2, when=None, of=Of("detect"), track_ttl=3.0)
    assert [index for index, *_ in answered(processed)] == [0, 5]


def test_whole_frames_are_sent_and_keep_the_answer(vlm):
    footage = scene([((80, 60, 240, 180), GREEN, True)] * 3)
    happen(footage[1], track=None)
    processed, _ = ask(vlm, footage, batch=1, capture="frame", max_size=160)
    assert vlm.calls[0].images[0].shape == (120, 160, 3)
    assert [(index, track, "label" in data) for index, track, data in answered(processed)] == [(1, None, False)]
    injured = [frame.facts.get("attributes", {}).get("injured") for frame in processed]
    assert injured == [None, {"label": "yes", "score": None}, {"label": "yes", "score": None}]


def test_events_without_an_image_are_dropped_and_counted(vlm):
    footage = scene([(LARGE, GREEN, True), None, None])
    happen(footage[1], track=8)
    happen(footage[1], track=None)
    happen(footage[2], kind="other")
    logged = collect()
    processed, counts = ask(vlm, footage)
    assert (answered(processed), vlm.calls) == ([], [])
    assert counts == {
        "questions given up: the object was not seen": 1,
        "questions given up: the event has no object": 1,
    }
    assert logged == ["ask: an event has no object to show; capture: frame shows the frame"]
    bare = frames(1, "gate")
    happen(bare[0])
    assert ask(vlm, bare, capture="frame")[1] == {"questions given up: the frame has no pixels": 1}


def test_a_cleared_rule_triggers_only_if_named(vlm):
    footage = scene([(LARGE, GREEN, True)] * 2)
    for frame, kind in zip(footage, ("raised", "cleared"), strict=True):
        frame._state.stage = "rule"
        frame.emit(kind, 7, rule="fallen")
    for when, index in (("rule.fallen", 0), ("rule", 0), ("rule.fallen.cleared", 1), (["rule.cleared"], 1)):
        processed, _ = ask(vlm, footage, when=when, batch=1)
        assert [at for at, *_ in answered(processed)] == [index]
    assert answered(ask(vlm, footage, when="rule.other")[0]) == []


def test_attributes_of_other_stages_are_kept(vlm):
    footage = scene([(LARGE, GREEN, True)])
    color = {"color": {"label": "green", "score": 0.9}}
    footage[0].tables["detect"] = footage[0].tables["detect"].with_columns(attributes=np.array([color], object))
    happen(footage[0])
    processed, _ = ask(vlm, footage)
    assert set(processed[0].detections.extra["attributes"][0]) == {"color", "injured", "why"}


# -------------------------------------------------------------------------------------------------- calls and failures


def crowd(n):
    """A frame for each of n tracks, each with an event."""
    footage = scene([(LARGE, GREEN, True)] * n)
    for number, frame in enumerate(footage):
        frame.tables["detect"] = detections([LARGE], track_id=[number], label=["person"])
        happen(frame, track=number)
    return footage


def test_retries_are_counted_and_use_the_budget(vlm):
    vlm.answers = lambda call, number: 503 if number % 4 == 1 else {"injured": False, "why": ""}
    processed, counts = ask(vlm, crowd(9))
    assert len(answered(processed)) == 9
    assert len(vlm.calls) == counts["ask calls"] == 12
    assert counts["ask retries"] == counts["ask calls failed: HTTP 503"] == 3
    vlm.calls.clear()
    vlm.answers = lambda call, number: 503
    logged = collect()
    processed, counts = ask(vlm, crowd(4), at_most=Rate(8, "min"), attempts=3)
    assert answered(processed) == []
    assert len(vlm.calls) == counts["ask calls"] == 8, "three attempts for two questions, and two for the third"
    assert (counts["ask retries"], counts["questions failed: HTTP 503"]) == (6, 2)
    assert counts["questions dropped: budget used up"] == 2
    assert [text for text in logged if "budget" in text] == [
        "ask: the budget of calls is used up; further questions are dropped and counted"
    ]
    assert [text for text in logged if "503" in text] == [
        f"ask: {vlm.url}: HTTP 503 Service Unavailable (out of order); the question is given up after 3 attempts and "
        "counted"
    ]


def test_permanent_failures_are_not_retried(vlm):
    vlm.answers = lambda call, number: 401
    _, counts = ask(vlm, crowd(3))
    assert (len(vlm.calls), counts["questions failed: HTTP 401"], counts.get("ask retries")) == (3, 3, None)


def test_a_server_without_response_format_gets_calls_without_it(vlm):
    vlm.knows_response_format = False
    logged = collect()
    processed, counts = ask(vlm, crowd(60))
    assert len(answered(processed)) == 60
    assert len(vlm.calls) == counts["ask calls"] == 61, "one more, once: 1.02 calls a question"
    assert ["response_format" in call.body for call in vlm.calls] == [True] + [False] * 60
    assert [text for text in logged if "response_format" in text] == [
        f"ask: {vlm.url} does not know response_format; the form of the answer is in the prompt only"
    ]


def test_a_call_refused_for_another_reason_keeps_response_format(vlm):
    vlm.answers = lambda call, number: 400 if number < 2 else {"injured": True, "why": ""}
    processed, counts = ask(vlm, crowd(3))
    assert [index for index, *_ in answered(processed)] == [1, 2]
    assert ["response_format" in call.body for call in vlm.calls] == [True, False, True, True]
    assert counts["questions failed: HTTP 400"] == 1


LIES = [
    "Yes, clearly.",
    {"injured": "yes", "why": ""},
    {"injured": True},
    {"injured": True, "why": "", "name": "Bob"},
    {"injured": None, "why": ""},
    {"injured": True, "why": 5},
    {"injured": True, "why": "x" * 2000},
    [{"injured": True, "why": ""}],
    b"no JSON",
    b'{"choices": [{"message": {}}]}',
]


def test_answers_that_violate_the_schema_reach_no_record(vlm):
    vlm.answers = lambda call, number: LIES[number] if not isinstance(LIES[number], list) else str(LIES[number])
    processed, counts = ask(vlm, crowd(len(LIES)))
    assert all(frame.events[1:] == [] and "attributes" not in frame.detections.extra for frame in processed)
    assert counts["ask calls"] == len(LIES), "a lie is not asked for again"
    refused = {name: n for name, n in counts.items() if name.startswith(("answers refused", "questions failed"))}
    assert refused == {
        "answers refused: not JSON": 2,
        "answers refused: wrong form": 6,
        "questions failed: no completion": 2,
    }


def test_the_key_comes_from_the_environment_and_is_in_no_message(vlm, monkeypatch, tmp_path):
    monkeypatch.setenv("EYE_KEY", "sk-secret")
    ask(vlm, crowd(1), key_env="EYE_KEY")
    assert vlm.calls[0].headers["authorization"] == "Bearer sk-secret"
    monkeypatch.delenv("EYE_KEY")
    (tmp_path / "key").write_text("sk-of-a-file\n")
    monkeypatch.setenv("EYE_KEY_FILE", str(tmp_path / "key"))
    ask(vlm, crowd(1), key_env="EYE_KEY")
    assert vlm.calls[1].headers["authorization"] == "Bearer sk-of-a-file"
    monkeypatch.setenv("EYE_KEY", "se\ncret")
    with pytest.raises(ValueError, match="the key in EYE_KEY must consist of printable ASCII") as refused:
        Ask(vlm.url, "eye", "?", {"a": "bool"}, when="x.y", key_env="EYE_KEY")
    assert not re.search("se|cret$", str(refused.value).replace("consist", ""))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"prompt": " "}, "prompt must not be empty"),
        ({"model": ""}, "model must not be empty"),
        ({"url": "eye"}, "url must be the address of the endpoint"),
        ({"when": None}, "needs when: the events to ask about, as in fallen.raised; or of:"),
        ({"when": []}, "when must name an event"),
        ({"capture": "frame", "of": Of("detect")}, "of selects objects; leave it out with capture: frame"),
        ({"timeout": 0.0}, "timeout must be longer than 0s"),
        ({"parameters": {"messages": []}}, "parameters must not contain messages, which the stage sets"),
        (
            {"key_env": "sk-123"},
            r"^key_env must be the name of an environment variable, such as EYE_KEY, and not the key itself$",
        ),
        ({"parameters": {"seed": 2**70}}, "parameters must be values of JSON: Integer exceeds 64-bit range"),
        ({"images": 3, "after": 0.0}, "images: 3 are spread over after, which must be longer than 0s"),
        (
            {"key_env": "NOT_SET_ANYWHERE"},
            "the environment variable NOT_SET_ANYWHERE is not set; set it to the endpoint",
        ),
    ],
)
def test_invalid_options_are_refused(options, why):
    valid = {"url": "http://h/v1", "model": "eye", "prompt": "?", "answer": {"a": "bool"}, "when": "door.crossed"}
    with pytest.raises(ValueError, match=why):
        Ask(**{**valid, **options})


def test_the_sent_pixels_are_those_of_the_frame(vlm):
    """Also at the edges of the crop: nothing is moved, and what is not in the crop is not sent."""
    rng = np.random.default_rng(3)
    rgb = np.repeat(np.repeat(rng.integers(40, 216, (12, 16, 3), np.uint8), 20, axis=0), 20, axis=1)
    frame = frames(1, "gate", pixels=rgb)[0]
    surface = Surface(from_rgb(rgb, frame.surface.color), frame.surface.color)
    frame.surface = surface
    frame.tables = {"detect": detections([[80, 40, 160, 120]], track_id=[7], label=["person"])}
    happen(frame)
    ask(vlm, [frame], pad=0.0, quality=100)
    sent = vlm.calls[0].images[0].astype(int)
    assert sent.shape == (80, 80, 3)
    assert np.abs(sent - rgb[40:120, 80:160]).mean() < 6


@pytest.mark.gpu
def test_a_device_sends_the_same_images_with_a_single_copy(vlm):
    import cupy

    footage = scene([(SMALL, RED, True), (LARGE, GREEN, True), (SMALL, RED, True), (SMALL, RED, True)])
    happen(footage[0])
    ask(vlm, footage, after=2.0)
    for frame in footage:
        frame.surface = Surface(cupy.asarray(frame.surface.data), frame.surface.color)
    processed, counts = ask(vlm, footage, after=2.0)
    host, device = (call.images[0] for call in vlm.calls)
    assert (host == device).all()
    assert counts["ask images to host"] == 1
    assert len(answered(processed)) == 1
