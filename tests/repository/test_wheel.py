"""The wheel, installed into an environment of its own outside of the checkout, does what a new user tries first.

It is built here and borrows this environment's packages, so that nothing is downloaded. `just try-wheel` names a folder
with a wheel in $STREAMKIT_WHEEL instead; that one is installed with packages of its own.
"""

import email
import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from pathlib import Path

import pytest
from support.commands import decoded, records

from streamkit import __version__

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "streamkit/shipped/"
pytest.importorskip("build")
pytest.importorskip("hatchling")
pytestmark = pytest.mark.alone  # the demo is timed, and all share the environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel: by way of the source distribution, as a release is."""
    given = os.environ.get("STREAMKIT_WHEEL")
    folder = ROOT / given if given else tmp_path_factory.mktemp("dist")
    if not given:
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT]
        subprocess.run(build, check=True, capture_output=True, timeout=60)
    (found,) = folder.glob("*.whl")
    return found


class Installed:
    """An environment with the wheel, and an empty folder to work in."""

    def __init__(self, folder: Path, wheel: Path, download: bool) -> None:
        self.work, self.environment = folder / "work", folder / "environment"
        self.work.mkdir()
        venv.create(self.environment, with_pip=download, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", self.environment / "bin" / "python", "install", "--quiet"]
        what = [f"{wheel}[cpu,track]"] if download else ["--no-deps", "--no-index", "--no-compile", wheel]
        subprocess.run([*pip, *what], check=True, capture_output=True, text=True, timeout=600)
        if not download:  # after what lies there, so that the wheel comes first
            (packages,) = (self.environment / "lib").glob("python*/site-packages")
            mine = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
            (packages / "borrowed.pth").write_text("\n".join(mine))

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the installed command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STREAMKIT_"))}
        line = [self.environment / "bin" / "streamkit", *words]
        return subprocess.run(
            line, cwd=self.work, env={**kept, "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True, timeout=120
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel, download="STREAMKIT_WHEEL" in os.environ)


def test_the_wheel_has_the_shipped_files_and_is_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        sizes = {one.filename: one.file_size for one in packed.infolist()}
    tracked = subprocess.run(["git", "ls-files", "models"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {Path(name).name for name in tracked.splitlines() if name.endswith((".yaml", ".onnx"))}
    assert {"demo.yaml", "demo.onnx", "color.onnx"} <= files
    assert {name for name in sizes if name.startswith(PREFIX)} == {
        *(f"{PREFIX}models/{name}" for name in files), f"{PREFIX}samples/street.mp4"
    }  # fmt: skip
    assert sum(size for name, size in sizes.items() if name.startswith(PREFIX)) < 5e6
    assert wheel.stat().st_size < 5e6
    assert not [name for name in sizes if not name.startswith(("streamkit/", "streamkit_video-"))]


def test_the_license_is_in_the_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(packed.read(name))
        assert name.replace("METADATA", "licenses/LICENSE") in packed.namelist()
    assert (about["Name"], about["Version"]) == ("streamkit-video", __version__)
    assert (about["License-Expression"], about.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert not [one for one in about.get_all("Classifier", []) if one.startswith("License")]


def test_the_demo_runs_in_half_a_minute(installed: Installed) -> None:
    assert installed("--version").stdout == f"streamkit, version {__version__}\n"
    begun = time.monotonic()
    done = installed("demo")
    took_s = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    assert took_s < 30
    folder = installed.work / "streamkit-demo"
    for name in ("pipeline.yaml", "out/street.mp4", "out/street.jsonl"):
        assert f"streamkit-demo/{name}" in done.stdout
        assert (folder / name).is_file()
    assert sorted(path.name for path in installed.work.iterdir()) == ["streamkit-demo"]
    found = records(folder / "out" / "street.jsonl")
    assert len(found) == decoded(folder / "out" / "street.mp4") == 400
    assert {"car", "person", "bike"} == {one["label"] for record in found for one in record["objects"]}


def test_a_template_runs(installed: Installed) -> None:
    written = installed("init", "count", "shop")
    assert written.returncode == 0, written.stderr
    checked = installed("check", "shop/pipeline.yaml")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "shop/pipeline.yaml: ok, 1 source, 6 stages" in checked.stdout
    done = installed("run", "shop/pipeline.yaml", "--limit", "30", "--report", "report.json")
    assert done.returncode == 0, done.stderr
    report = json.loads((installed.work / "report.json").read_text())
    assert sorted(report["outputs"]) == ["out/street.jsonl", "out/street.mp4"]
    assert len(records(installed.work / "out" / "street.jsonl")) == 30


def test_doctor_finds_the_shipped_files(installed: Installed) -> None:
    done = installed("doctor")
    assert "demo: the network runs on the CPU" in done.stdout
    assert "demo: the video decodes on the CPU" in done.stdout
    assert "-e '" not in done.stdout  # commands that are for a checkout
    assert "git checkout" not in done.stdout
