"""cluster.yaml: what it may say, and what `check` tells."""

import sys
from pathlib import Path

import pytest

from streamkit.cluster.cluster_file import KEYS, environment, read_cluster, read_pipeline
from streamkit.cluster.head import pack_files, prepare_cluster
from streamkit.cluster.ray_nodes import connect
from streamkit.core.errors import ConfigError, MissingPackage

PIPELINE = 'sources: {gate: "rtsp://10.0.0.7/a"}\nstages:\n  jsonl: {path: "out/{source}.jsonl"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    return tmp_path


def cluster(folder: Path, text: str) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return path


def test_the_sources_of_both_files_run(folder):
    cluster_options = read_cluster(cluster(folder, "pipeline: pipeline.yaml\nsources: {door: rtsp://10.0.0.8/a}\n"))
    assert (cluster_options.ray, str(cluster_options.folder)) == ("auto", "~/streamkit-cluster")
    assert [source.id for source in read_pipeline(cluster_options).sources] == ["gate", "door"]
    (folder / "pipeline.yaml").write_text('stages:\n  jsonl: {path: "out/{source}.jsonl"}\n')
    config = read_pipeline(cluster_options)
    assert ([source.id for source in config.sources], config.problems) == (["door"], [])
    cluster_options = read_cluster(cluster(folder, "pipeline: pipeline.yaml\n"))  # sources may be added later
    assert read_pipeline(cluster_options).problems == []


def test_an_id_in_both_files_is_a_problem(folder):
    path = cluster(folder, "pipeline: pipeline.yaml\nsources:\n  gate: rtsp://10.0.0.8/a\n")
    (problem,) = read_pipeline(read_cluster(path)).problems
    assert str(problem) == (
        f"{path}:3:3: there is a source 'gate' in pipeline.yaml already; give one of them another id"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline: none.yaml", "1:11: pipeline: there is no file "),
        ("ray: auto", "a cluster needs pipeline: the path of a pipeline's YAML"),
        ("pipeline: pipeline.yaml\nnodes: 3", "2:1: unknown key 'nodes'"),
        ("pipeline: pipeline.yaml\nstages: {}", "it belongs into the pipeline's YAML"),
        ("pipeline: pipeline.yaml\nray: ray://10.0.0.5:10001", "2:6: ray must be auto or the address"),
        ("pipeline: pipeline.yaml\nray: 10.0.0.5", "as host:port, such as 10.0.0.5:6379, got '10.0.0.5'"),
        ("pipeline: pipeline.yaml\nfolder: out", "2:9: folder must be an absolute path, or begin with ~"),
        ("pipeline: [a]", "pipeline must be a text, such as pipeline: pipeline.yaml, got ['a']"),
        ("- pipeline.yaml", "a cluster is a mapping with the keys pipeline, sources, ray, folder"),
    ],
)
def test_invalid_cluster_files_are_refused(folder, text, message):
    with pytest.raises(ConfigError) as error:
        read_cluster(cluster(folder, text))
    assert message in str(error.value)


def test_the_commands_accept_a_cluster_file(here, folder):
    cluster(folder, "pipeline: pipeline.yaml\nsources: {door: rtsp://10.0.0.8/a}\n")
    completed = here("check", "cluster.yaml", cwd=folder)
    assert (completed.returncode, completed.stdout) == (
        0,
        "cluster.yaml: ok, pipeline.yaml with 2 sources on the Ray cluster auto\n",
    )
    completed = here("run", "cluster.yaml", cwd=folder)
    assert (completed.returncode, "this is a cluster, not a pipeline; start it with: " in completed.stderr) == (2, True)
    cluster(folder, "pipeline: pipeline.yaml\nsources: {door: 7}\n")
    completed = here("check", "cluster.yaml", cwd=folder)
    assert completed.returncode == 2
    assert "cluster.yaml:2:17: " in completed.stderr


def test_check_reports_the_problems_of_both_files_at_once(here, folder):
    cluster(folder, "pipeline: pipeline.yaml\nray: 10.0.0.5\nsources: {door: 7}\n")
    (folder / "pipeline.yaml").write_text("stages: {drow: {}}\n")
    completed = here("check", "cluster.yaml", cwd=folder)
    assert completed.returncode == 2
    places = [line.split(": ")[0] for line in completed.stderr.splitlines()]
    assert places == ["cluster.yaml:2:6", "cluster.yaml:3:17", "pipeline.yaml:1:10"]


def test_strict_refuses_the_warnings_of_a_cluster(here, folder):
    cluster(folder, "pipeline: pipeline.yaml\nsources: {door: none.mp4}\n")
    checked = here("check", "cluster.yaml", cwd=folder)
    assert (checked.returncode, checked.stdout.startswith("cluster.yaml: ok, 1 warning, ")) == (0, True)
    strict = here("check", "cluster.yaml", "--strict", cwd=folder)
    assert (strict.returncode, strict.stdout) == (2, "")
    assert "cluster.yaml:2:17: source door: there is no file none.mp4" in strict.stderr


def test_missing_ray_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackage, match=r"streamkit cluster needs the package ray; .*\[ray,serve\]"):
        connect("auto")


def test_a_node_gets_the_pipeline_and_its_files(folder, monkeypatch):
    (folder / "plugins").mkdir()
    (folder / "plugins" / "own.py").write_text("")
    (folder / "pipeline.yaml").write_text(f"plugins: [plugins]\n{PIPELINE}# ${{MQTT_USER}} ${{NOT_SET}}\n")
    files = pack_files(folder / "pipeline.yaml")
    assert list(files) == ["plugins/own.py", "pipeline.yaml"]  # the YAML comes last: the others are there by then
    monkeypatch.setenv("MQTT_USER", "ann")
    monkeypatch.delenv("NOT_SET", raising=False)
    assert environment(files["pipeline.yaml"].decode()) == {"MQTT_USER": "ann"}


def test_the_docs_page_shows_every_key_of_a_cluster_file(folder, root):
    page = (root / "docs" / "cluster.md").read_text(encoding="utf-8")
    cluster_options = read_cluster(cluster(folder, page.split("```yaml\n")[1].split("```")[0]))
    (folder / "pipeline.yaml").write_text('stages:\n  jsonl: {path: "out/{source}.jsonl"}\n')
    config = read_pipeline(cluster_options)
    assert ([source.id for source in config.sources], config.problems) == (["gate", "door"], [])
    assert all(f"| `{key}` |" in page for key in KEYS)


@pytest.mark.parametrize("ray", ["10.0.0.1:6379", "head:6379"])
def test_another_ray_cluster_needs_a_restart(folder, ray):
    at_start = read_cluster(cluster(folder, "pipeline: pipeline.yaml\n"))
    cluster(folder, f"pipeline: pipeline.yaml\nray: {ray}\n")
    with pytest.raises(ConfigError, match="pipeline, ray and folder are read at the start only"):
        prepare_cluster(at_start, None, None, lambda: None, allow_files=False, keep_events="1d", keep_size="1GB")
