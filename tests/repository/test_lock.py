"""constraints.txt has a version of every package that pyproject.toml asks for, within its range."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = [Requirement(line) for line in TEXT.splitlines() if not line.startswith("#")]
TEXTS = [*PROJECT["dependencies"], *chain.from_iterable(PROJECT["optional-dependencies"].values())]
REQUIREMENTS = [parsed for text in TEXTS if (parsed := Requirement(text)).name != PROJECT["name"]]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_has_one_version_in_its_range(python):
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.9",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    pins = {}
    for pin in PINS:
        if pin.marker is None or pin.marker.evaluate(machine):
            pins.setdefault(canonicalize_name(pin.name), []).append(next(iter(pin.specifier)).version)
    versions = {str(requirement): pins.get(canonicalize_name(requirement.name), []) for requirement in REQUIREMENTS}
    wrong = {
        str(requirement): versions[str(requirement)]
        for requirement in REQUIREMENTS
        if len(versions[str(requirement)]) != 1
        or not requirement.specifier.contains(versions[str(requirement)][0], prereleases=True)
    }
    assert wrong == {}, "run: just lock"


def test_versions_are_exact_and_come_from_no_certain_place():
    assert len(PINS) > 100
    assert [str(pin) for pin in PINS if [specifier.operator for specifier in pin.specifier] != ["=="] or pin.url] == []
    assert not re.search(r"://|--|file:", TEXT)


def test_the_gate_installs_these_versions():
    assert "export PIP_CONSTRAINT=$PWD/constraints.txt\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "runtime"), [("requirements-cpu.txt", "onnxruntime"), ("requirements-gpu.txt", "onnxruntime-gpu")]
)
def test_the_files_with_hashes_have_the_same_versions(name, runtime):
    text = (ROOT / "examples" / "deploy" / name).read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.search(r" --hash=sha256:[0-9a-f]{64}", line)] == []
    assert not re.search(r"://|file:", text)
    locked = {str(Requirement(line.partition("--hash")[0])).split(";")[0].strip() for line in lines}
    assert locked <= {str(pin).split(";")[0].strip() for pin in PINS}, "run: just lock"
    names = {Requirement(line).name for line in locked}
    assert {"av", "numba", "fastapi", runtime} <= names
