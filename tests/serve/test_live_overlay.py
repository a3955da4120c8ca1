"""What the live view draws: the objects and shapes of a moment, from sparse records, and where labels are."""

import itertools

import pytest
from support.pages import CHROMIUM, chromium_fixture  # noqa: F401  fixture

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")

ZONE = {"name": "door", "text": "door 1", "closed": True, "units": "share", "points": [[0, 0], [1, 0], [1, 1]]}


@pytest.fixture(scope="module")
def page(chromium, server):
    page = chromium.new_page()
    page.goto(server.url)
    yield page
    page.close()


def record(pts_s, objects=(), skipped=(), shapes=()):
    return {
        "schema": "streamkit/1",
        "source": "a",
        "frame": round(pts_s * 25),
        "pts_s": pts_s,
        "width": 100,
        "height": 100,
        "objects": list(objects),
        "shapes": list(shapes),
        "skipped": list(skipped),
    }


def track(number, left, **more):
    return {"stage": "x", "class_id": 0, "score": 0.5, "track_id": number, "box": [left, 0, left + 10, 20], **more}


def shown(page, records, times):
    """What is drawn at each time: the left edges of the boxes by track or label, and the number of shapes."""
    return page.evaluate(
        """async ([list, times]) => {
          const { Records } = await import("/page/live/records.js");
          const records = new Records(() => {});
          for (const record of list) records.keep(record);
          return times.map((time) => {
            const record = records.at("a", time);
            const left = (object) => [object.label ?? object.track_id, Math.round(object.box[0] * 100) / 100];
            return record && [Object.fromEntries(record.objects.map(left)), record.shapes.length];
          });
        }""",
        [records, times],
    )


def boxes(page, records, times):
    return [entry and entry[0] for entry in shown(page, records, times)]


# ------------------------------------------------------------------------------------------------------------- records


def test_a_track_is_interpolated_between_records(page):
    records = [record(n / 5, [track(1, 10 * n)]) for n in range(4)]
    times = [0.2, 0.24, 0.3, 0.36, 0.4]
    assert boxes(page, records, times) == [{"1": 10}, {"1": 12}, {"1": 15}, {"1": 18}, {"1": 20}]


def test_keypoints_and_masks_move_with_their_track(page):
    moving = [record(n / 5, [track(1, 10 * n, corners=[[10 * n, 0]], keypoints=[[10 * n, 4, 0.5]])]) for n in range(3)]
    measured = page.evaluate(
        """async (list) => {
          const { Records } = await import("/page/live/records.js");
          const records = new Records(() => {});
          for (const record of list) records.keep(record);
          const [{ corners, keypoints, shift }] = records.at("a", 0.3).objects;
          const rounded = (points) => points.flat().map((value) => Math.round(value * 100) / 100);
          return [corners, keypoints, shift].map(rounded);
        }""",
        moving,
    )
    assert measured == [[15, 0], [15, 4, 0.5], [5, 0]]


def test_an_object_stays_for_one_and_a_half_intervals_after_the_last_record(page):
    records = [record(n / 5, [track(1, 10)]) for n in range(4)]
    assert boxes(page, records, [0.6, 0.75, 0.9, 0.91]) == [{"1": 10}, {"1": 10}, {"1": 10}, {}]
    single = [record(0, [track(1, 10)])]  # the interval is not known yet
    assert boxes(page, single, [0.49, 0.51]) == [{"1": 10}, {}]


def test_a_track_that_is_not_in_the_next_record_stays_until_then(page):
    records = [record(0, [track(1, 10)]), record(0.2, [track(1, 20), track(2, 50)]), record(0.4, [track(2, 60)])]
    assert boxes(page, records, [0.3, 0.4]) == [{"1": 20, "2": 55}, {"2": 60}]


def test_no_box_moves_over_a_long_time_without_records(page):
    records = [record(n / 5, [track(1, 10)]) for n in range(4)]
    records += [record(2.0, [track(1, 90)]), record(2.2, [track(1, 90)])]
    assert boxes(page, records, [0.8, 1.0, 1.9, 2.0]) == [{"1": 10}, {}, {}, {"1": 90}]
    close = [record(n / 5, [track(1, 10)]) for n in range(4)] + [record(1.2, [track(1, 40)])]
    assert boxes(page, close, [0.7, 0.8]) == [{"1": 15}, {"1": 20}]  # two records are missing


def test_untracked_objects_are_not_interpolated(page):
    cars = [record(n / 5, [{"stage": "x", "class_id": 0, "label": "car", "box": [10 * n, 0, 9, 9]}]) for n in range(3)]
    assert boxes(page, cars, [0.3, 0.4, 0.7, 0.71]) == [{"car": 10}, {"car": 20}, {"car": 20}, {}]


def test_shapes_stay_visible_once_received(page):
    records = [record(n / 5, [track(1, 10)], shapes=[ZONE]) for n in range(3)]
    assert shown(page, records, [-5.0, 0.1, 0.4, 30.0]) == [[{}, 1], [{"1": 10}, 1], [{"1": 10}, 1], [{}, 1]]
    assert shown(page, [], [0.0]) == [None]


def test_a_slow_source_keeps_the_records_for_interpolation(page):
    records = [record(5.0 * n, [track(1, 10 * n)]) for n in range(4)]
    assert boxes(page, records, [12.5, 15.0, 22.4, 22.6]) == [{"1": 25}, {"1": 30}, {"1": 30}, {}]


def test_a_restarted_source_shows_no_earlier_records(page):
    records = [record(8.0, [track(1, 10)]), record(8.2, [track(1, 20)]), record(0.0, [track(2, 30)])]
    assert boxes(page, records, [0.0, 8.1]) == [{"2": 30}, {}]


def test_objects_stay_on_frames_skipped_by_their_detector(page):
    car, person, face = (
        {"label": name, "stage": "y" if name == "face" else "x", "class_id": 0, "box": [1, 1, 2, 2]}
        for name in ("car", "person", "face")
    )
    records = [
        record(0.0, [car, person, face]),
        record(0.1, [face], ["x"]),
        record(0.2, [car], ["x"]),  # its tracker predicts one
        record(0.3, []),
    ]
    measured = [sorted(entry) for entry in boxes(page, records, [0, 0.09, 0.1, 0.2, 0.3, 0.34])]
    first = ["car", "face", "person"]
    assert measured == [first, first, first, ["car"], [], []]


def test_a_track_is_interpolated_over_skipped_frames(page):
    searched = [0, 3, 6]
    records = [
        record(n / 25, [track(1, 10 * n)] if n in searched else [], [] if n in searched else ["x"]) for n in range(7)
    ]
    times = [n / 25 for n in range(6)]
    assert boxes(page, records, times) == [{"1": 10 * n} for n in range(6)]


@pytest.mark.parametrize(
    ("times", "interval_s"),
    [
        ([0.0], None),
        ([0, 0.2], 0.2),
        ([0, 0.2, 0.4, 1.4, 1.6], 0.2),
        ([0, 5, 10], 5),
        ([n / 25 for n in range(50)], 0.04),
    ],
)
def test_the_interval_is_the_typical_time_between_records(page, times, interval_s):
    measured = page.evaluate(
        """async (list) => {
          const { Records } = await import("/page/live/records.js");
          const records = new Records(() => {});
          for (const record of list) records.keep(record);
          return records.interval_s("a");
        }""",
        [record(time) for time in times],
    )
    assert measured == (interval_s if interval_s is None else pytest.approx(interval_s))


# -------------------------------------------------------------------------------------------------------------- labels


def place(page, *frames, taken=()):
    """The labels of the last frame, as text, left and top; letters are ten pixels wide, labels 16 high."""
    return page.evaluate(
        """async ([frames, taken]) => {
          const { Labels } = await import("/page/live/labels.js");
          const labels = new Labels(), canvas = { width: 640, height: 360 };
          const placed = frames.map((objects) => labels.place(objects, taken, canvas, 16, (text) => 10 * text.length));
          return placed.at(-1).map(({ text, left, top, wide, high }) => ({ text, left, top, wide, high }));
        }""",
        [list(frames), list(taken)],
    )


def labeled(key, left, top, wide, high, *forms):
    box = [left, top, left + wide, top + high]
    return {"key": key, "box": box, "forms": forms or [f"person {key} 0.81", f"person {key}", key], "ground": "#fff"}


def texts(labels):
    return {label["text"] for label in labels}


@pytest.mark.parametrize(
    ("wide", "high", "text"),
    [(200, 300, ["person #7 0.81"]), (80, 200, ["person #7"]), (12, 60, ["#7"]), (9, 60, []), (200, 30, [])],
)
def test_a_label_is_shortened_to_the_width_of_its_object(page, wide, high, text):
    assert [label["text"] for label in place(page, [labeled("#7", 100, 100, wide, high)])] == text


def test_labels_of_a_crowd_do_not_overlap(page):
    crowd = [labeled(f"#{n}", 40 + 14 * n, 150 + 6 * (n % 4), 30, 80) for n in range(20)]
    labels = place(page, crowd, taken=[{"left": 100, "top": 130, "wide": 60, "high": 16}])
    assert len(labels) >= 8
    areas = [*labels, {"left": 100, "top": 130, "wide": 60, "high": 16}]
    for label, other in itertools.combinations(areas, 2):
        apart = (
            label["left"] + label["wide"] <= other["left"]
            or other["left"] + other["wide"] <= label["left"]
            or label["top"] + label["high"] <= other["top"]
            or other["top"] + other["high"] <= label["top"]
        )
        assert apart, (label, other)


def test_a_long_label_does_not_hide_another_object(page):
    near = labeled("#1", 100, 150, 120, 200)
    far = labeled("#2", 120, 100, 40, 49)
    labels = place(page, [near, far])
    assert texts(labels) == {"person #1 0.81", "#2"}
    assert next(label for label in labels if label["text"] == "person #1 0.81")["top"] == 150  # inside of its own box


def test_a_label_keeps_its_text_and_position(page):
    frames = [[labeled("#1", 100, 150, wide, 200)] for wide in (80, 72, 78, 71, 86)]
    assert [texts(place(page, *frames[: n + 1])) for n in range(5)] == [{"person #1"}] * 5
    small = [[labeled("#1", 100, 150, wide, 200)] for wide in (60, 71, 80, 90)]
    assert [texts(place(page, *small[: n + 1])) for n in range(4)] == [{"#1"}, {"#1"}, {"#1"}, {"person #1"}]
    other = labeled("#2", 90, 120, 60, 40)
    below = [labeled("#1", 100, 150, 30, 60)]
    (moved,) = [label for label in place(page, [*below, other]) if label["text"] == "#1"]
    (stays,) = place(page, [*below, other], below)
    assert stays["top"] == moved["top"]


def test_a_label_stays_within_the_image(page):
    (top,) = place(page, [labeled("#1", 600, 4, 30, 100)])
    assert top["left"] + top["wide"] <= 640
    assert top["top"] == 104  # there is no room above
