"""The example's compose file: its services are closed, depend on what there is, and find their files and secrets."""

import re
import shutil
import subprocess

import pytest
import yaml
from support.dockerfile import read_dockerfile

from streamkit.cli import cli
from streamkit.config.pipeline_config import read
from streamkit.serve.token_store import read_tokens

PINNED = re.compile(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}")
SERVICES = ("grafana", "mosquitto", "prometheus", "streamkit")


@pytest.fixture(scope="module")
def deploy(root):
    return root / "examples" / "deploy"


@pytest.fixture(scope="module")
def compose(deploy):
    return yaml.safe_load((deploy / "compose.yaml").read_text())


@pytest.fixture
def copied(deploy, tmp_path):
    """A copy of the example with new secrets."""
    shutil.copytree(deploy, tmp_path / "deploy", ignore=shutil.ignore_patterns("secrets"))
    subprocess.run(["sh", tmp_path / "deploy" / "make_secrets.sh"], check=True)
    return tmp_path / "deploy"


def test_the_services_are_known(compose):
    assert sorted(compose["services"]) == list(SERVICES)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_rights_it_does_not_need(compose, name):
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.keys() & {"privileged", "cap_add", "network_mode", "pid", "ipc", "devices"}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_is_pinned_or_built_here(deploy, compose, name):
    service = compose["services"][name]
    if "build" not in service:
        assert PINNED.fullmatch(service["image"])
        assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
        return
    build = service["build"]
    assert (deploy / build["context"] / build["dockerfile"]).samefile(deploy / "Dockerfile")
    assert build["target"] in read_dockerfile((deploy / "Dockerfile").read_text())[1]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_finds_its_files_volumes_and_secrets(deploy, compose, name):
    service = compose["services"][name]
    for source, _, *options in (volume.split(":") for volume in service["volumes"]):
        if source.startswith("."):
            assert (deploy / source).is_dir()  # a single file would not follow an editor's rename
            assert options == ["ro"]
        else:
            assert source in compose["volumes"]
    assert set(service["secrets"]) <= compose["secrets"].keys()
    for variable, path in service.get("environment", {}).items():
        if variable.endswith("_FILE"):
            assert path.removeprefix("/run/secrets/") in service["secrets"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_others_that_report_their_health(compose, deploy, name):
    for other, condition in compose["services"][name].get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"}
        in_image = "build" in compose["services"][other] and "\nHEALTHCHECK" in (deploy / "Dockerfile").read_text()
        assert "healthcheck" in compose["services"][other] or in_image


def test_the_server_is_started_with_options_that_there_are(compose):
    command, pipeline, *options = compose["services"]["streamkit"]["command"]
    option_names = {name for parameter in cli.commands[command].params for name in parameter.opts}
    assert pipeline.startswith("/config/")
    assert {option.partition("=")[0] for option in options} <= option_names


def test_prometheus_reaches_the_server_by_an_allowed_name_with_its_token(deploy, compose):
    (job,) = yaml.safe_load((deploy / "prometheus" / "prometheus.yaml").read_text())["scrape_configs"]
    (target,) = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    service = compose["services"][host]
    assert f"--allowed-host={host}" in service["command"]  # other names get status 421
    assert service["ports"][0].endswith(f":{port}")
    secret = job["authorization"]["credentials_file"].removeprefix("/run/secrets/")
    assert secret in compose["services"]["prometheus"]["secrets"]


def test_secrets_are_made_once_and_closed_to_other_users(copied, compose):
    folder = copied / "secrets"
    assert {path.name for path in folder.iterdir()} == compose["secrets"].keys()
    assert folder.stat().st_mode & 0o077 == 0
    secrets = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(set(secrets.values())) == len(secrets)
    assert all(re.fullmatch(r"[0-9a-f]{48}\n", text) for text in secrets.values())
    (folder / "mqtt_password").write_text("my own\n")
    subprocess.run(["sh", copied / "make_secrets.sh"], check=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == secrets | {"mqtt_password": "my own\n"}


def test_git_ignores_the_secrets(root):
    assert "/examples/deploy/secrets/" in (root / ".gitignore").read_text().splitlines()


def test_the_pipeline_and_the_tokens_are_valid(copied, root, monkeypatch):
    monkeypatch.setenv("MQTT_PASSWORD_FILE", str(copied / "secrets" / "mqtt_password"))
    monkeypatch.setenv("METRICS_TOKEN_FILE", str(copied / "secrets" / "metrics_token"))
    path = copied / "config" / "pipeline.yaml"
    path.write_text(path.read_text().replace("/samples/", f"{root}/samples/"))
    assert read(path).problems == []
    (token,) = read_tokens(copied / "config" / "tokens.yaml")
    assert token.role == "viewer"  # Prometheus cannot change anything
    assert token.matches((copied / "secrets" / "metrics_token").read_text().strip())


def test_the_gpu_file_changes_the_image_and_asks_for_every_gpu(deploy):
    added = yaml.safe_load((deploy / "compose.gpu.yaml").read_text())["services"]
    assert added.keys() == {"streamkit"}
    assert (added["streamkit"]["build"], added["streamkit"]["image"]) == ({"target": "gpu"}, "streamkit:gpu")
    (device,) = added["streamkit"]["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": "all", "capabilities": ["gpu", "compute", "video", "utility"]}


def test_docker_compose_accepts_both_files(copied):
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose on this machine")
    command = ["docker", "compose", "-f", "compose.yaml", "-f", "compose.gpu.yaml", "config", "--quiet"]
    completed = subprocess.run(command, cwd=copied, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_promtool_accepts_the_configuration_of_prometheus(copied):
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on this machine")
    path = copied / "prometheus" / "prometheus.yaml"
    path.write_text(path.read_text().replace("/run/secrets", str(copied / "secrets")))
    completed = subprocess.run(["promtool", "check", "config", path], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    assert re.search(r"SUCCESS: \d+ rules found", completed.stdout)


def test_dependabot_renews_the_pinned_images(root):
    updates = yaml.safe_load((root / ".github" / "dependabot.yml").read_text())["updates"]
    assert {(update["package-ecosystem"], update["directory"]) for update in updates} == {
        ("docker", "/examples/deploy"),
        ("docker-compose", "/examples/deploy"),
    }
