"""What is listed of brokers elsewhere follows from what their emitters declare.

After a broker is added, `STREAMKIT_WRITE=1 pytest tests/repository/test_brokers.py` writes the table of
docs/emitters.md and the extra `brokers`.
"""

import os
import re
import subprocess
import tomllib

import pytest
from support.brokers import PLACES

from streamkit.core.stage import default_registry
from streamkit.emit.broker import broker_table, brokers

BROKERS = brokers(default_registry())
FORMATS = {"avro", "protobuf"}
WITHOUT_SERVER = {"email", "parquet"}
"""Emitters whose tests need no place: mails go to a server in the test's process, Parquet files into a folder."""


def replaced(path, pattern, text):
    """Check that a file has a text where the pattern matches; write it there on request."""
    content = path.read_text(encoding="utf-8")
    expected, count = re.subn(pattern, lambda _: text, content, count=1)
    assert count == 1, f"{path} has no place for {text}"
    if os.environ.get("STREAMKIT_WRITE"):
        path.write_text(expected, encoding="utf-8")
    return content == expected


def test_the_table_of_emitters_shows_every_broker(root):
    pattern = r"\| stage \| sends to \|.*\n(?:\|.*\n)*"
    assert replaced(root / "docs/emitters.md", pattern, broker_table(BROKERS) + "\n")


def test_the_extra_brokers_installs_all_of_them(root):
    names = FORMATS | {name for name, broker in BROKERS.items() if broker.modules and broker.example}
    text = f'brokers = ["streamkit-video[{",".join(sorted(names))}]"]\n'
    assert replaced(root / "pyproject.toml", r"brokers = .*\n", text)


@pytest.mark.parametrize("name", [name for name, broker in BROKERS.items() if broker.modules])
def test_a_broker_has_an_extra_of_its_name(name, root):
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"][name]


def test_every_broker_has_a_place_in_tests():
    assert PLACES.keys() | WITHOUT_SERVER == BROKERS.keys()


def test_the_readme_names_receivers_that_exist(root):
    readme = (root / "README.md").read_text()
    named = re.search(r"\[([^\]]*) and\s+others\]\(docs/emitters.md\)", readme)[1]
    receivers = [f"{name} {broker.product}".lower() for name, broker in BROKERS.items()]
    unknown = [word for word in named.split(", ") if not any(word.lower().rstrip("s") in text for text in receivers)]
    assert unknown == []


def test_the_gate_installs_the_servers(root):
    script = next(line for line in (root / ".ci/run").read_text().splitlines() if "debian_packages" in line)
    command = re.search(r"\$\((.*)\)\)$", script)[1]
    installed = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True, check=True).stdout
    declared = [place.server.debian_packages for place in PLACES.values() if place.server is not None]
    assert set(installed.split()) == set(" ".join(declared).split())


def test_the_image_has_the_brokers(root):
    extras = re.search(r"^ARG EXTRAS=(.*)$", (root / "examples/deploy/Dockerfile").read_text(), re.MULTILINE)[1]
    assert "brokers" in extras.split(",")
