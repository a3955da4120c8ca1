"""docs/troubleshooting*.md: every message on the pages is one that streamkit writes."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("troubleshooting*.md"))


@cache
def texts() -> str:
    """All texts of the package, in which a message is looked for."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "streamkit").rglob("*.py"))
    constants = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return "\n".join(constant for constant in constants if isinstance(constant, str))


def messages() -> list[str]:
    return [message for page in PAGES for message in re.findall(r"^\| `(.*?)` \|", page.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("message", messages())
def test_the_message_is_one_of_streamkit(message):
    parts = [part.strip(" ;:.,()") for part in message.split("…")]
    assert any(len(part) >= 10 for part in parts), "a message has a part that does not differ"
    assert [part for part in parts if len(part) > 6 and part not in texts()] == []
