"""What the CUDA driver's calls need of the process; no GPU."""

from streamkit.ops.cuda.driver import clear_last_error, loaded_libraries

MAPS = """\
7f00-7f01 r--p 00000000 fe:00 1  /usr/lib/libcudart.so.13
7f01-7f02 r-xp 00000000 fe:00 1  /usr/lib/libcudart.so.13
7f03-7f04 r-xp 00000000 fe:00 2  /opt/libcudnn.so.9
7f05-7f06 rw-p 00000000 00:00 0
"""


def test_each_loaded_library_is_listed_once(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(MAPS)
    assert loaded_libraries("libcudart", maps) == ["/usr/lib/libcudart.so.13"]
    assert loaded_libraries("libcudnn", maps) == ["/opt/libcudnn.so.9"]
    assert loaded_libraries("libcudart", tmp_path / "none") == []


def test_a_library_that_cannot_be_loaded_ends_nothing(tmp_path):
    maps = tmp_path / "maps"
    maps.write_text(MAPS.replace("/usr/lib", str(tmp_path)))
    clear_last_error(maps)
