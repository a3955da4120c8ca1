"""Figures measured on a GPU are read from disk; the others are first guesses."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.messages import collect

from streamkit.media.gpu_figures import (
    FIRST_GUESSES,
    MEANINGS,
    MEASURED_BY_RUNS,
    figure_file,
    read_figures,
    session_limit,
    store_figure,
)

GPU = "NVIDIA L4, CUDA 13.0, PyNvVideoCodec 2.2.4, Python 3.12, streamkit 0.1.0"
H200 = "NVIDIA H200, CUDA 13.0"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "streamkit" / "gpu"


def test_a_gpu_starts_with_estimates():
    assert read_figures(GPU) == dict(FIRST_GUESSES) == read_figures("")
    assert MEANINGS.keys() == FIRST_GUESSES.keys() >= set(MEASURED_BY_RUNS)
    assert {figure.origin for figure in FIRST_GUESSES.values()} == {"first guess, of an H200"}


def test_a_measured_figure_replaces_the_estimate_on_that_gpu_only():
    store_figure(GPU, "lock_us_h264", 180.5)
    figures = read_figures(GPU)
    assert figures["lock_us_h264"].amount == 180.5
    assert figures["lock_us_h264"].origin.startswith("measured here on 20")
    assert figures["lock_us_hevc"] == FIRST_GUESSES["lock_us_hevc"]
    assert read_figures(H200) == dict(FIRST_GUESSES)


def test_the_latest_lock_time_and_the_highest_rate_are_stored():
    for amount in (2000.0, 2500.0, 1000.0):
        store_figure(GPU, "decoders_fps_h264", amount)
        store_figure(GPU, "lock_us_h264", amount)
    assert read_figures(GPU)["decoders_fps_h264"].amount == 2500.0
    assert read_figures(GPU)["lock_us_h264"].amount == 1000.0


@pytest.mark.parametrize(
    ("counts", "limit"),
    [
        ([], None),
        ([64], None),  # another program may have held sessions
        ([64, 64], 64),
        ([64, 32], None),
        ([32, 64, 64], 64),
        ([64, 64, 32], 64),
        ([64, 64, 32, 32], 64),
        ([64, 64, 96], None),
        ([64, 64, 96, 96], 96),
    ],
)
def test_two_refusals_at_the_same_count_set_the_session_limit(counts, limit):
    for count in counts:
        store_figure(GPU, "sessions", count)
    assert session_limit(GPU) == limit
    assert session_limit("") is None


def test_the_estimated_limit_applies_to_that_card_only():
    assert session_limit(H200) == 286
    assert session_limit("NVIDIA H200 NVL, CUDA 13.0") is None


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '{"amount": "x", "measured_on": "2026-11-27", "runs": 1}'])
def test_a_damaged_file_is_reported_once_and_measured_again(text):
    store_figure(GPU, "lock_us_h264", 180.0)
    figure_file(GPU, "lock_us_h264").write_text(text)
    logged = collect()
    assert read_figures(GPU) == read_figures(GPU) == dict(FIRST_GUESSES)
    assert len(logged) == 1
    assert "cannot be read" in logged[0]
    store_figure(GPU, "lock_us_h264", 170.0)
    assert read_figures(GPU)["lock_us_h264"].amount == 170.0


@pytest.mark.parametrize("amount", ["0", "-1", "NaN", "Infinity"])
def test_an_impossible_amount_is_ignored(amount):
    store_figure(GPU, "lock_us_h264", 180.0)
    figure_file(GPU, "lock_us_h264").write_text(f'{{"amount": {amount}, "measured_on": "2026-11-27", "runs": 1}}')
    assert read_figures(GPU) == dict(FIRST_GUESSES)


def test_an_unwritable_folder_is_reported_and_the_run_continues(cache):
    cache.parent.mkdir()
    cache.write_text("no folder")
    logged = collect()
    store_figure(GPU, "lock_us_h264", 180.0)
    assert len([text for text in logged if "is not stored" in text]) == 1
    assert read_figures(GPU) == dict(FIRST_GUESSES)


def test_concurrent_writers_leave_a_complete_file(cache):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda amount: store_figure(GPU, "lock_us_h264", float(amount)), range(100, 180)))
    assert 100 <= read_figures(GPU)["lock_us_h264"].amount < 180
    assert len(os.listdir(cache)) == 1
