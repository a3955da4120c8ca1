"""Write `examples/counted_line.ipynb` from the tutorial: `python docs/notebook.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorial-notebook.md"
NOTEBOOK = ROOT / "examples" / "counted_line.ipynb"
_FOLDER = 'import os\n\nos.chdir("..")  # to the checkout, which has the samples'


def cells(page: str) -> list[tuple[str, str]]:
    """The cells of the page: `markdown` or `code`, and the text; shell commands stay in the text."""
    parts = re.split(r"^```python\n(.*?)^```\n", page, flags=re.MULTILINE | re.DOTALL)
    found = [("code" if at % 2 else "markdown", part.strip()) for at, part in enumerate(parts)]
    found = [(kind, _plain_links(text) if kind == "markdown" else text) for kind, text in found if text]
    return [found[0], ("code", _FOLDER), *found[1:]]


def notebook(page: str) -> dict[str, Any]:
    """The notebook, nbformat 4.5, without outputs."""
    made = []
    for number, (kind, text) in enumerate(cells(page)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def text_of(page: str) -> str:
    """The notebook as the text of its file."""
    return json.dumps(notebook(page), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def _plain_links(text: str) -> str:
    """Links of the page as seen from examples/."""
    text = re.sub(r"\]\(\.\./examples/", "](", text)
    return re.sub(r"\]\(([\w-]+\.md)", r"](../docs/\1", text)


if __name__ == "__main__":
    NOTEBOOK.write_text(text_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
