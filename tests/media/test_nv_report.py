"""What C code prints is heard, by thread."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs glibc's fopencookie")

_SCRIPT = textwrap.dedent(
    """
    import ctypes, threading
    from streamkit.media import nv_report

    libc = ctypes.CDLL(None)
    assert nv_report.install() and nv_report.install()
    barrier = threading.Barrier(4)
    found = {}

    def decode(name, pictures):
        barrier.wait()
        for number in range(pictures):
            libc.printf(b"Decode Error occurred for picture %d\\n", number)
        barrier.wait()
        found[name] = nv_report.take() if nv_report.damaged else 0

    threads = [threading.Thread(target=decode, args=(n, 100 * n)) for n in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert found == {0: 0, 1: 100, 2: 200, 3: 300}, found
    assert not nv_report.damaged
    libc.puts(b"a word of the library")
    print("a record")
    """
)


def test_damage_is_counted_by_thread_and_other_output_goes_to_stderr() -> None:
    completed = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == "a record\n"
    assert completed.stderr == "a word of the library\n"


def test_a_c_library_without_such_streams_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamkit.media import nv_report

    def missing(_: object) -> object:
        raise OSError("no such library")

    monkeypatch.setattr(nv_report, "_installed", [])
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert not nv_report.install()
