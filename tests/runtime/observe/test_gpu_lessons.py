"""What runs learn about a GPU, with counts, samples and utilization as a GPU gives them."""

from types import SimpleNamespace

import pytest

from streamkit.media.gpu_figures import FIRST_GUESSES, read_figures, session_limit
from streamkit.media.nv_sessions import REFUSED
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.gpu_lessons import GpuLesson, LockLesson
from streamkit.stages.inference.infer import UNTUNED

GPU = "NVIDIA L4, CUDA 13.0"
H264 = {"codec": "h264", "width": 1920, "height": 1080}
HEVC = {**H264, "codec": "hevc"}
EXPECTED_US = {"h264": 112.0, "hevc": 138.0}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


class Sampler:
    """The lock was free for this share of the time."""

    def __init__(self, free):
        self.free = free

    def __call__(self, stopped):
        pass


class Card:
    """Utilization of the decoders."""

    def __init__(self, *shares):
        self.shares = list(shares)

    def use(self):
        share = self.shares.pop(0) if len(self.shares) > 1 else self.shares[0]
        return SimpleNamespace(decoder=share)

    def close(self):
        pass


class Sources:
    """Sources that give frames, at a rate."""

    def __init__(self, *facts, fps=1000.0):
        self.states = {f"s{i}": SourceState(facts=dict(each)) for i, each in enumerate(facts)}
        self.fps = fps
        self.counts = {}

    def run(self, lesson, seconds, start_s=100.0):
        for second in range(seconds):
            lesson(start_s + second)
            for state in self.states.values():
                state.frames += int(self.fps / len(self.states))


def locked(sources, seconds=45, free=0.5, expected=EXPECTED_US, start_s=100.0, gpu_use=0.5):
    sources.run(
        LockLesson(
            GPU, expected, lambda: sources.states, lambda: sources.counts, lambda: gpu_use, lambda: Sampler(free)
        ),
        seconds,
    )
    return read_figures(GPU)


def test_the_lock_time_of_a_frame_is_measured():
    assert locked(Sources(H264, H264, fps=2500))["lock_us_h264"].amount == pytest.approx(200.0)


def test_other_stages_do_not_count():
    figures = locked(Sources(HEVC, fps=2500), expected={"h264": 224.0, "hevc": 276.0})
    assert figures["lock_us_hevc"].amount == pytest.approx(100.0)
    assert figures["lock_us_h264"] == FIRST_GUESSES["lock_us_h264"]


@pytest.mark.parametrize(
    ("facts", "options"),
    [
        ([H264], {"seconds": 25}),  # a short run
        ([H264], {"free": 0.8}),  # of an idle machine
        ([H264], {"free": None}),  # not sampled
        ([H264], {"gpu_use": 0.95}),  # networks are the limit
        ([H264], {"gpu_use": None}),
        ([H264], {"expected": {}}),  # stages whose time is unknown
        ([H264, HEVC], {}),
        ([{"codec": "av1"}], {}),
        ([], {}),
    ],
)
def test_unsuitable_runs_do_not_measure_the_lock_time(facts, options):
    assert locked(Sources(*facts), **options) == dict(FIRST_GUESSES)


def test_nothing_is_measured_during_tuning_and_measuring_is_retried():
    sources = Sources(H264, fps=2500)
    lesson = LockLesson(
        GPU, EXPECTED_US, lambda: sources.states, lambda: sources.counts, lambda: 0.5, lambda: Sampler(0.5)
    )
    sources.run(lesson, 25)
    sources.counts = {UNTUNED: 1}
    sources.run(lesson, 20, 125.0)
    assert read_figures(GPU) == dict(FIRST_GUESSES)
    sources.run(lesson, 80, 145.0)
    assert read_figures(GPU)["lock_us_h264"].amount == pytest.approx(200.0)


def test_an_unsuitable_run_is_sampled_a_few_times_only():
    sources = Sources(H264, fps=2500)
    samplers = []

    def sampler() -> Sampler:
        samplers.append(Sampler(0.9))
        return samplers[-1]

    lesson = LockLesson(GPU, EXPECTED_US, lambda: sources.states, lambda: sources.counts, lambda: 0.5, sampler)
    sources.run(lesson, 1200)
    assert len(samplers) == 5


def decoded(sources, *shares, seconds=60):
    lesson = GpuLesson(GPU, lambda: sources.states, lambda: 0, Card(*shares))
    sources.run(lesson, seconds)
    return read_figures(GPU)


@pytest.mark.parametrize("share", [0.95, 1.0])
def test_the_decoder_rate_is_measured_if_decoders_are_the_bottleneck(share):
    assert decoded(Sources(H264, H264, fps=2000), 0.0, share)["decoders_fps_h264"].amount == 2000


@pytest.mark.parametrize(
    ("facts", "shares"),
    [
        ([H264], (0.0, 0.9)),  # something else is the limit
        ([H264], (0.5, 1.0)),  # another program decodes
        ([H264], (None, 1.0)),
        ([H264, HEVC], (0.0, 1.0)),
        ([{**H264, "width": 1280, "height": 720}], (0.0, 1.0)),
        ([{**H264, "codec": "av1"}], (0.0, 1.0)),
    ],
)
def test_unsuitable_runs_do_not_measure_the_decoder_rate(facts, shares):
    assert decoded(Sources(*facts), *shares) == dict(FIRST_GUESSES)


def test_a_short_run_does_not_measure_the_decoder_rate():
    assert decoded(Sources(H264), 0.0, 1.0, seconds=35) == dict(FIRST_GUESSES)


def test_a_removed_source_leaves_no_rate():
    sources = Sources(H264, H264, fps=2000)
    lesson = GpuLesson(GPU, lambda: sources.states, lambda: 0, Card(0.0, 1.0))
    sources.run(lesson, 30)
    del sources.states["s0"]
    sources.run(lesson, 15, 130.0)
    assert read_figures(GPU) == dict(FIRST_GUESSES)


def test_the_session_limit_is_measured_by_two_runs_with_a_refusal():
    for _ in range(2):
        assert session_limit(GPU) is None
        sources = Sources(H264)
        opened = iter([60, 62, 64, 63, 63, 63, 63, 63, 63, 63])
        lesson = GpuLesson(GPU, lambda of=sources: of.states, opened.__next__, Card(0.0))
        sources.run(lesson, 5)
        sources.states["s0"].counters.add(REFUSED)
        sources.run(lesson, 10, 105.0)
    assert session_limit(GPU) == 64


def test_a_gpu_is_sampled_at_most_once_a_second():
    sources = Sources(H264)
    sources.states["s0"].counters.add(REFUSED)
    sample_times_s = []
    now_s = 100.0

    def open_sessions():
        sample_times_s.append(now_s)
        return 60

    lesson = GpuLesson(GPU, lambda: sources.states, open_sessions, Card(0.0))
    for _ in range(13):
        lesson(now_s)
        now_s += 0.25
    assert sample_times_s == [101.0, 102.0, 103.0]
