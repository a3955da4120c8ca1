"""The example's Dockerfile: what it copies is there, what it names exists, and the images are closed to change."""

import json
import re
import shutil
import subprocess
import tomllib

import pytest
from support.dockerfile import ignored, lineage, read_dockerfile

from streamkit.cli import cli

IMAGES = ("cpu", "gpu")
PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")


@pytest.fixture(scope="module")
def dockerfile(root):
    return root / "examples" / "deploy" / "Dockerfile"


@pytest.fixture(scope="module")
def stages(dockerfile):
    return read_dockerfile(dockerfile.read_text())[1]


@pytest.fixture(scope="module")
def patterns(root):
    lines = (root / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def project(root):
    return tomllib.loads((root / "pyproject.toml").read_text())


def test_every_stage_begins_with_another_one_or_with_a_pinned_image(stages):
    assert set(IMAGES) <= stages.keys()
    for stage in stages.values():
        assert stage.base in stages or PINNED.fullmatch(stage.base), stage.base


def test_the_python_of_the_image_can_run_streamkit(stages, project):
    minor = int(re.search(r"python:3\.(\d+)", stages["runtime"].base)[1])
    (lowest,) = map(int, re.findall(r"3\.(\d+)", project["project"]["requires-python"]))
    assert minor >= lowest
    assert stages["build"].base == stages["runtime"].base  # the environment names its interpreter's path


@pytest.mark.parametrize("image", IMAGES, ids="image-{}".format)
def test_an_image_has_the_extras_of_its_device(stages, dockerfile, project, image):
    extras = read_dockerfile(dockerfile.read_text())[0]["EXTRAS"].split(",")
    extras_of_project = project["project"]["optional-dependencies"]
    assert {"serve", "track", "brokers"} <= set(extras) <= extras_of_project.keys()
    assert image in extras_of_project
    packages = stages[f"packages-{image}"]
    (command,) = packages.rest_of("RUN")
    assert f"for extra in {image} ${{EXTRAS}}" in command
    assert "--constraints constraints.txt" in command  # the versions that the gate tests
    assert packages.rest_of("COPY") == ["pyproject.toml constraints.txt ./"]  # not the code, which changes more often
    copied = [re.match(r"--from=([\w-]+) ", rest)[1] for rest in stages[image].rest_of("COPY")]
    assert copied == [f"packages-{image}", "wheel"]


def test_the_build_context_has_the_files_of_the_wheel(root, project, patterns):
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    version = project["tool"]["hatch"]["version"]["path"]
    needed = ["pyproject.toml", "constraints.txt", "LICENSE", project["project"]["readme"], version, "models/demo.onnx"]
    hooks = [hook["path"] for hook in wheel.get("hooks", {}).values()]
    for name in [*needed, *hooks, *wheel["packages"], *wheel.get("force-include", {})]:
        assert (root / name).exists(), name
        assert not ignored(name, patterns), name
    modules = [path.relative_to(root).as_posix() for path in (root / "streamkit").rglob("*.py")]
    assert [name for name in modules if ignored(name, patterns)] == []


def test_the_build_gets_nothing_that_git_ignores(root, patterns):
    for line in (root / ".gitignore").read_text().splitlines():
        name = line.strip("/").replace("*", "x")
        inside = name if "." in name.lstrip(".") else f"{name}/file"
        assert ignored(inside, patterns) != line.startswith("!"), line
    for secret in (
        "examples/deploy/secrets/streamkit_token",
        ".env",
        "models/.env",
        "secrets/token",
        "key.pem",
        ".git/config",
    ):
        assert ignored(secret, patterns), secret


@pytest.mark.parametrize(
    ("path", "patterns", "is_ignored"),
    [
        ("a/b.txt", ["a"], True),
        ("ab/b.txt", ["a"], False),
        ("x/a/b.txt", ["a"], False),
        ("x/a/b.txt", ["**/a"], True),
        ("a/b.onnx", ["a/*.onnx", "!a/b.onnx"], False),
        ("a/c.onnx", ["a/*.onnx", "!a/b.onnx"], True),
        ("a/b/c.onnx", ["a/*.onnx"], False),
    ],
)
def test_patterns_are_read_as_docker_does(path, patterns, is_ignored):
    assert ignored(path, patterns) is is_ignored


@pytest.mark.parametrize("image", IMAGES, ids="image-{}".format)
def test_an_image_runs_the_server_as_a_user_without_rights(stages, project, image):
    steps = [step for stage in lineage(stages, image) for step in stage.steps]
    last = dict(steps)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", last["USER"])
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(last["ENTRYPOINT"]) == ["streamkit"]
    assert "streamkit" in project["project"]["scripts"]
    command, *words = json.loads(last["CMD"])
    options = {name for parameter in cli.commands[command].params for name in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    assert last["HEALTHCHECK"].endswith("]")
    runs = " ".join(rest for step, rest in steps if step == "RUN")
    assert not re.search(r"\b(?:apt-get|pip|uv|gcc)\b", runs)  # packages come from the build stages
    labels = " ".join(rest for step, rest in steps if step == "LABEL")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_the_gpu_image_asks_the_driver_for_cuda_nvdec_and_nvml(stages):
    (environment,) = stages["gpu"].rest_of("ENV")
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in environment


def test_hadolint_accepts_the_dockerfile(dockerfile):
    if shutil.which("hadolint") is None:
        pytest.skip("no hadolint on this machine")
    completed = subprocess.run(["hadolint", dockerfile], capture_output=True, text=True, check=False)
    assert completed.stdout == ""
    wrong = dockerfile.read_text().replace("USER 1000:1000", "USER root")
    completed = subprocess.run(["hadolint", "-"], input=wrong, capture_output=True, text=True, check=False)
    assert "DL3002" in completed.stdout  # it does look


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("image", IMAGES, ids="image-{}".format)
def test_pip_finds_the_packages_of_an_image(root, image):
    if shutil.which("just") is None:
        pytest.skip("no just on this machine")
    completed = subprocess.run(["just", "image-packages", image], capture_output=True, text=True, cwd=root, check=False)
    assert completed.returncode == 0, completed.stderr
    packages = completed.stdout.split("Would install ")[1].lower()
    wanted = {"cpu": ["onnxruntime-1"], "gpu": ["onnxruntime-gpu-1", "cupy-cuda13x-14", "pynvvideocodec-2"]}[image]
    assert [name for name in [*wanted, "numba-", "paho-mqtt-", "fastapi-"] if name not in packages] == []
