"""Compiled code is kept, and what was kept is not used when any of its sources has changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import streamkit.tracking
from streamkit.tracking.jit import _remove_old, cache_folder, content_digest, sources_stamp

CODE = """
from streamkit.core.logs import messages_to
from streamkit.core.stage import Context
from streamkit.stages.analytics.track import Track
from streamkit.tracking import update_batch as module
from streamkit.tracking.jit import compiled, is_cached

@compiled
def update_frame(lane, tracks, embeddings, objects, first, end, st, last_id, ids):
    return last_id

module.update_frame = update_frame  # nearly all that there is to compile, and nothing of how it is kept
advance, logged = module.advance, []
before = is_cached(advance)
stage = Track()
stage.context = Context("track")
with messages_to(lambda text, *_: logged.append(text)):
    stage.open()
print(before, len(logged), sum(advance.stats.cache_hits.values()), sum(advance.stats.cache_misses.values()))
"""


@pytest.mark.long
def test_compilation_happens_once_and_is_logged(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def started():
        return subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True).stdout.split()

    assert started() == ["False", "1", "0", "1"]
    assert started() == ["True", "0", "1", "0"]


def test_a_change_of_any_source_is_noticed(tmp_path, monkeypatch):
    import streamkit.tracking.jit as jit

    folder = Path(streamkit.tracking.__file__).parent
    for path in folder.glob("*.py"):
        shutil.copy(path, tmp_path)
    before = sources_stamp()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    assert sources_stamp() == before
    with (tmp_path / "kalman.py").open("a") as file:
        file.write("# another")
    assert sources_stamp() != before


def checkout(place: Path) -> Path:
    """A second copy of the package, its files newer."""
    package = Path(streamkit.tracking.__file__).parents[1]
    shutil.copytree(
        package, place / "streamkit", ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
    )
    return place


def hits(place: Path, cache: Path, **more: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(place), "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **more}
    completed = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, cwd=place, timeout=150
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.split()


@pytest.mark.long
@pytest.mark.slow
def test_equal_checkouts_share_compiled_code(tmp_path):
    cache = tmp_path / "cache"
    first = checkout(tmp_path / "first")
    second = checkout(tmp_path / "second")
    assert hits(first, cache) == ["False", "1", "0", "1"]
    assert hits(second, cache) == ["True", "0", "1", "0"]
    assert len(list((cache / "streamkit" / "compiled").iterdir())) == 1
    assert not list(first.rglob("*.nbi"))
    with (second / "streamkit" / "tracking" / "kalman.py").open("a") as file:
        file.write("# another\n")
    assert hits(second, cache) == ["False", "1", "0", "1"]
    assert hits(first, cache) == ["True", "0", "1", "0"]


def test_without_a_user_cache_compiled_code_is_beside_the_source(tmp_path):
    place = checkout(tmp_path / "first")
    cache = tmp_path / "cache"
    cache.write_text("a file is no folder")
    assert hits(place, cache) == ["False", "1", "0", "1"]
    assert hits(place, cache) == ["True", "0", "1", "0"]
    assert list((place / "streamkit" / "tracking").rglob("*.nbi"))


def test_the_digest_depends_on_names_and_contents_only(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("1")
    first = content_digest(tmp_path / "a")
    assert len(first) == 64
    assert content_digest(tmp_path / "b") == first
    (tmp_path / "b" / "x.py").write_text("2")
    assert content_digest(tmp_path / "b") != first
    (tmp_path / "b" / "x.py").write_text("1")
    (tmp_path / "b" / "x.py").rename(tmp_path / "b" / "y.py")
    assert content_digest(tmp_path / "b") != first


def test_unused_cache_folders_are_removed(tmp_path):
    folders = [tmp_path / str(n) for n in range(20)]
    for age, folder in enumerate(folders):
        folder.mkdir()
        (folder / "x.nbi").touch()
        os.utime(folder, (1_000_000 - age, 1_000_000 - age))
    _remove_old(folders[19])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*map(str, range(15)), "19"])


def test_the_cache_folder_is_in_the_users_cache(monkeypatch, tmp_path):
    from numba import config

    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "streamkit" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/.cache/streamkit/compiled")
    monkeypatch.setattr(config, "CACHE_DIR", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/streamkit")
