"""Puts the line with the license at the top of each Python file that ships and lacks it.

usage: python tests/repository/license_lines.py
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINE = "# SPDX-License-Identifier: Apache-2.0\n"


def files_without() -> list[Path]:
    """The Python files of the package, of plugins/, and run.py that do not begin with the line."""
    paths = [ROOT / "run.py", *(path for folder in ("streamkit", "plugins") for path in (ROOT / folder).rglob("*.py"))]
    return sorted(path for path in paths if not path.read_text(encoding="utf-8").startswith(LINE))


if __name__ == "__main__":
    for path in files_without():
        path.write_text(LINE + path.read_text(encoding="utf-8"), encoding="utf-8")
        print(path.relative_to(ROOT))
