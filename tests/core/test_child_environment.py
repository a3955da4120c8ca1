"""Child processes find the modules of their parent."""

import subprocess
import sys

from streamkit.core.child_environment import child_environment


def test_a_child_in_another_folder_imports_modules_of_a_checkout(tmp_path, monkeypatch):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "module_of_a_checkout.py").write_text("print('imported')\n")
    monkeypatch.syspath_prepend(checkout)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    completed = subprocess.run(
        [sys.executable, "-m", "module_of_a_checkout"], env=child_environment(), cwd=elsewhere, capture_output=True
    )
    assert completed.stdout == b"imported\n", completed.stderr
