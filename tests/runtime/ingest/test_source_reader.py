"""One source read on a thread: what a pause does to each kind, and what it may not yield."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.cameras import REGISTRY, WRITTEN, going, pipeline, until  # the paths are set just above
from support.clips import write

from streamkit.core.data import Frame
from streamkit.core.errors import SourceError
from streamkit.core.retry import Retry
from streamkit.core.stage import Collecting, Source, stage
from streamkit.testing.kit import gray

RATE, FRAMES, PAUSE_S = 50, 60, 0.6

with Collecting(REGISTRY):

    @stage("wrong", writes="pixels")
    class Wrong(Source):
        """Yields three frames as it should, and then what it must not."""

        what: str

        def frames(self) -> Iterator[Any]:
            for index in range(3):
                frame = Frame(self.context.id, index, index / 25, 16, 16, gray(16, 16))
                yield frame
            if self.what == "again":
                yield frame
            elif self.what == "foreign":
                yield Frame("b", 3, 0.12, 16, 16, gray(16, 16))
            else:
                yield gray(16, 16)

    @stage("jumping", writes="pixels")
    class Jumping(Source):
        """A camera of a plugin, whose clock is set twice and stands still once."""

        reconnects: bool = False
        times: str = "5.0 5.1 3.0 3.1 15.0 90000.0 90000.1 90000.1"

        @property
        def retry(self) -> Retry | None:
            return Retry() if self.reconnects else None

        @property
        def unbounded(self) -> bool:
            return True

        def frames(self) -> Iterator[Frame]:
            for index, pts_s in enumerate(map(float, self.times.split())):
                now_s = time.monotonic()
                yield Frame(self.context.id, index, pts_s, 16, 16, gray(16, 16), time_s=time.time(), due_s=now_s)
            if self.reconnects:
                raise SourceError("a connection that is not repeated")


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write(tmp_path_factory.mktemp("clips") / "a.mp4", frames=FRAMES)


@pytest.fixture(scope="module")
def shots(tmp_path_factory):
    import cv2

    folder = tmp_path_factory.mktemp("shots")
    for number in range(FRAMES):
        cv2.imwrite(str(folder / f"{number:03}.png"), gray(16, 16).data)
    return folder


@pytest.mark.parametrize(
    "more",
    [
        "uri: 'test://?width=32&height=32&frames=60'", "stage: images, uri: SHOTS", "uri: CLIP",
        "uri: CLIP, reconnect: true", "uri: CLIP, reconnect: true, fault: {fail: 1h}", "uri: CLIP, fault: {fail: 1h}",
    ],
)  # fmt: skip
def test_a_file_with_a_pace_stands_still_in_a_pause_and_its_pace_with_it(clip, shots, more):
    text = more.replace("CLIP", str(clip)).replace("SHOTS", str(shots))
    running, logged = pipeline(
        f"sources: {{a: {{{text}, pace: {RATE}, pace_seed: 0}}}}\nbatch: {{max_latency: 1min}}\nstages: {{note: {{}}}}"
    )
    seen: list[tuple[int, float]] = []
    running.listen(lambda shown: seen.extend((frame.index, frame.due_s or 0.0) for frame, _ in shown))
    with going(running):
        until(lambda: len(WRITTEN.get("a", [])) > 10)
        running.pause("a")
        until(lambda: sum(running.queues().values()) == 0)
        at = running.states["a"].frames
        time.sleep(PAUSE_S)
        assert running.states["a"].frames <= at + 1
        running.resume("a")
        until(lambda: running.states["a"].done)
    assert running.states["a"].frames == FRAMES  # a file that began anew would have given more
    assert WRITTEN["a"] == sorted(set(WRITTEN["a"]))
    late_s = [b[1] - a[1] - (b[0] - a[0]) / RATE for a, b in itertools.pairwise(seen)]
    *others, pause_s = sorted(late_s)
    assert pause_s > PAUSE_S - 2 / RATE
    assert max(map(abs, others)) < 1e-6
    assert not [text for text in logged if "faults are injected" not in text]


@pytest.mark.parametrize("uri", ["test://?width=32&height=32&frames=0", "CLIP"])
def test_a_file_without_an_end_stands_still_too(clip, uri):
    loop = ", loop: true" if uri == "CLIP" else ""
    text = f"{{uri: '{uri.replace('CLIP', str(clip))}'{loop}}}"
    running, _ = pipeline(f"sources: {{a: {text}}}\nstages: {{slow: {{pause_s: 0.01}}, note: {{}}}}")
    seen: list[float] = []
    running.listen(lambda shown: seen.extend(frame.pts_s for frame, _ in shown))
    with going(running):
        for _ in range(3):
            so_far = len(seen)
            until(lambda n=so_far: len(seen) > n + 5)
            running.pause("a")
            until(lambda: sum(running.queues().values()) == 0)
            running.resume("a")
    assert seen == pytest.approx([index / 25 for index in range(len(seen))])  # no time passed for it


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("again", "wrong yields the same Frame twice; yield a new Frame for each image"),
        ("foreign", "wrong yields a frame of the source 'b'; create each frame as Frame(self.context.id, ...)"),
        ("surface", "wrong yields Surface, not a Frame; yield a Frame for each image"),
    ],
)
def test_what_a_source_may_not_yield_is_its_failure(what, message):
    running, logged = pipeline(
        f"sources: {{a: {{stage: wrong, what: {what}}}, b: 'test://?width=16&height=16&frames=20'}}\n"
        "stages: {note: {}}"
    )
    with going(running):
        until(lambda: running.states["a"].complete and running.states["b"].complete)
    assert logged == [f"source a failed: {message}"]
    assert running.states["a"].state == "failed"
    assert {"a": [0, 1, 2], "b": list(range(20))} == WRITTEN


@pytest.mark.parametrize("reconnects", [False, True])
def test_the_times_of_a_live_source_that_jump_are_corrected_whether_or_not_it_reconnects(reconnects):
    """A time may be up to 10 s ahead of the clock."""
    running, _ = pipeline(
        f"sources: {{a: {{stage: jumping, reconnects: {reconnects}}}}}\n"
        "batch: {max_latency: 1min}\nstages: {note: {}}",
        limit=8,
    )
    times_s: list[float] = []
    running.listen(lambda shown: times_s.extend(frame.pts_s for frame, _ in shown))
    with going(running):
        until(lambda: running.states["a"].done)
    gaps_s = [after - before for before, after in itertools.pairwise(times_s)]
    assert len(gaps_s) == 7
    assert [gaps_s[0], gaps_s[2]] == pytest.approx([0.1, 0.1])
    assert all(0 < gap_s < 2 for gap_s in (gaps_s[1], gaps_s[3], gaps_s[4], gaps_s[6]))
    assert running.report(0)["counts"]["timestamp jumps corrected"] == 4


def test_times_that_a_live_source_may_have_are_left_alone():
    running, _ = pipeline(
        "sources: {a: {stage: jumping, times: '5.0 14.9 24.8 24.9'}}\nbatch: {max_latency: 1min}\nstages: {note: {}}",
    )
    times_s: list[float] = []
    running.listen(lambda shown: times_s.extend(frame.pts_s for frame, _ in shown))
    with going(running):
        until(lambda: running.states["a"].done)
    assert times_s == [5.0, 14.9, 24.8, 24.9]
    assert "timestamp jumps corrected" not in running.report(0)["counts"]
