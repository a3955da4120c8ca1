"""The command itself: what it says where a word of it is wrong."""

from pathlib import Path

import pytest
from cli.commands import Here


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("chek", "pipeline.yaml"), "No such command 'chek'; did you mean 'check'?"),
        (("samples/street.mp4",), "samples/street.mp4 is no pipeline; name a YAML in which it stands under sources"),
    ],
)
def test_a_wrong_command_says_what_was_meant(root: Path, here: Here, args: tuple[str, ...], told: str) -> None:
    done = here(*args, cwd=root)
    assert done.returncode == 2
    assert told in done.stderr
