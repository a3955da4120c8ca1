"""The kernels' text as it goes to the compiler."""

from pathlib import Path

import pytest

from streamkit.ops.cuda import load

FOLDER = Path(load.__file__).parent


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("*.cu")))
def test_a_loaded_source_is_self_contained(file: str) -> None:
    text = load.source(file)
    assert 'extern "C" __global__' in text
    assert '#include "' not in text  # own headers are in the text
    assert text.startswith(f'#line 1 "{file}"\n')


def test_headers_are_included_once_and_line_numbers_are_kept(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "a.cu").write_text('first\n#include "b.cuh"\n  # include "c.cuh"\nlast\n')
    (tmp_path / "b.cuh").write_text('#pragma once\n#include "c.cuh"\nb\n')
    (tmp_path / "c.cuh").write_text("#pragma once\nc\n")
    monkeypatch.setattr(load, "_FOLDER", tmp_path)
    text = load.source.__wrapped__("a.cu")
    lines = text.splitlines()
    place = ("", 0)
    places = {}
    for line in lines:
        if line.startswith("#line "):
            _, number, name = line.split()
            place = (name.strip('"'), int(number))
        else:
            if line:
                places[line] = place
            place = (place[0], place[1] + 1)
    assert places == {"first": ("a.cu", 1), "c": ("c.cuh", 2), "b": ("b.cuh", 3), "last": ("a.cu", 4)}


def test_an_unknown_file_is_reported_with_the_existing_ones() -> None:
    with pytest.raises(FileNotFoundError, match=r"has no file 'nmss\.cu'; it has .*preprocess\.cu"):
        load.source("nmss.cu")


@pytest.mark.gpu
def test_a_kernel_is_compiled_once() -> None:
    kernel = load.kernel("preprocess.cu", "preprocess", ("OUT=float", "NHWC=0"))
    assert load.kernel("preprocess.cu", "preprocess", ("OUT=float", "NHWC=0")) is kernel
    assert load.kernel("preprocess.cu", "preprocess", ("OUT=__half", "NHWC=0")) is not kernel
