"""The wheel, installed into an environment of its own outside of the checkout, does what a new user tries first.

It is built here and borrows this environment's packages, so that nothing is downloaded. `just try-wheel` names a folder
with a wheel in $STREAMKIT_WHEEL instead; that one is installed with packages of its own.
"""

import email
import json
import os
import resource
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from support.commands import decoded, records
from support.default_network import shipped_as_default

from streamkit import __version__

ROOT = Path(__file__).resolve().parents[2]
pytest.importorskip("build")
pytest.importorskip("hatchling")


def listed(*words: str) -> list[str]:
    """The existing files that `git ls-files` lists."""
    completed = subprocess.run(["git", "ls-files", "-z", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in completed.stdout.split("\0") if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel: by way of the source distribution, as a release is, from the files of a fresh clone."""
    wheel_name = os.environ.get("STREAMKIT_WHEEL")
    folder = ROOT / wheel_name if wheel_name else tmp_path_factory.mktemp("dist")
    if not wheel_name:
        clone = tmp_path_factory.mktemp("clone")
        for name in listed("-co", "--exclude-standard"):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, clone]
        subprocess.run(build, check=True, capture_output=True, timeout=60)
    (built,) = folder.glob("*.whl")
    return built


class Installed:
    """An environment with the wheel, and an empty folder to work in."""

    def __init__(self, folder: Path, wheel: Path, download: bool) -> None:
        self.work = folder / "work"
        self.environment = folder / "environment"
        self.work.mkdir()
        venv.create(self.environment, with_pip=download, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", self.environment / "bin" / "python", "install", "--quiet"]
        what = [f"{wheel}[cpu,track]"] if download else ["--no-deps", "--no-index", "--no-compile", wheel]
        subprocess.run([*pip, *what], check=True, capture_output=True, text=True, timeout=600)
        if not download:  # after what lies there, so that the wheel comes first
            (packages,) = (self.environment / "lib").glob("python*/site-packages")
            site_packages = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
            (packages / "borrowed.pth").write_text("\n".join(site_packages))

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the installed command."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "STREAMKIT_"))}
        line = [self.environment / "bin" / "streamkit", *words]
        return subprocess.run(
            line,
            cwd=self.work,
            env={**variables, "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            timeout=150,
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"), wheel, download="STREAMKIT_WHEEL" in os.environ)


def test_the_wheel_has_the_shipped_files_and_is_small(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        files = {
            entry.filename: entry
            for entry in packed.infolist()
            if not entry.filename.startswith("streamkit/docs_site/")
        }
    wanted = [name for name in listed("models", "samples") if name.endswith((".yaml", ".onnx", ".mp4", ".json"))]
    assert {"models/demo.yaml", "models/demo.onnx", "samples/street.mp4"} <= set(wanted)
    shipped = {name: entry.file_size for name, entry in files.items() if name.startswith("streamkit/shipped/")}
    assert sorted(shipped) == sorted(f"streamkit/shipped/{name}" for name in wanted)
    assert sum(shipped.values()) < 5e6
    assert sum(entry.compress_size for entry in files.values()) < 5e6
    assert [name for name in files if not name.startswith(("streamkit/", "streamkit_video-"))] == []


def test_the_license_is_in_the_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
        about = email.message_from_bytes(packed.read(name))
        assert name.replace("METADATA", "licenses/LICENSE") in packed.namelist()
    assert (about["Name"], about["Version"]) == ("streamkit-video", __version__)
    assert (about["License-Expression"], about.get_all("License-File")) == ("Apache-2.0", ["LICENSE"])
    assert not [classifier for classifier in about.get_all("Classifier", []) if classifier.startswith("License")]


def test_the_wheel_has_the_documentation(installed: Installed) -> None:
    completed = installed("docs", "rules")
    assert completed.stdout.startswith("# Write rules\n"), completed.stderr


def test_the_demo_runs_in_half_a_minute(installed: Installed) -> None:
    assert installed("--version").stdout == f"streamkit, version {__version__}\n"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    completed = installed("demo")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert completed.returncode == 0, completed.stderr
    # CPU time, which other tests do not change: one core is enough to stay below 30 s
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 30
    folder = installed.work / "streamkit-demo"
    for name in ("pipeline.yaml", "out/street.mp4", "out/street.jsonl"):
        assert f"streamkit-demo/{name}" in completed.stdout
        assert (folder / name).is_file()
    assert sorted(path.name for path in installed.work.iterdir()) == ["streamkit-demo"]
    frame_records = records(folder / "out" / "street.jsonl")
    assert len(frame_records) == decoded(folder / "out" / "street.mp4") == 400
    assert {"car", "person", "bike"} == {
        detected["label"] for record in frame_records for detected in record["objects"]
    }


def test_a_template_runs(installed: Installed) -> None:
    shipped_as_default(installed.work / "shop")  # `auto` would be downloaded
    written = installed("init", "count", "shop")
    assert written.returncode == 0, written.stderr
    checked = installed("check", "shop/pipeline.yaml")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "shop/pipeline.yaml: ok, 1 source, 6 stages" in checked.stdout
    completed = installed("run", "shop/pipeline.yaml", "--limit", "30", "--report", "report.json")
    assert completed.returncode == 0, completed.stderr
    report = json.loads((installed.work / "report.json").read_text())
    assert sorted(report["outputs"]) == ["out/street.jsonl", "out/street.mp4"]
    assert len(records(installed.work / "out" / "street.jsonl")) == 30


def test_doctor_finds_the_shipped_files(installed: Installed) -> None:
    completed = installed("doctor")
    assert "demo: the network runs on the CPU" in completed.stdout
    assert "demo: the video decodes on the CPU" in completed.stdout
    assert "-e '" not in completed.stdout  # commands that are for a checkout
    assert "git checkout" not in completed.stdout
