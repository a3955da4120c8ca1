"""The commands of justfile, workflows and commit hooks exist and agree with pyproject.toml."""

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from streamkit import __version__
from streamkit.core.version import REPOSITORY

ROOT = Path(__file__).resolve().parents[2]
JUSTFILE = (ROOT / "justfile").read_text()
RECIPES = set(re.findall(r"^([\w-]+)(?: .*)?:$", JUSTFILE, re.MULTILINE))
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def commands(workflow: str) -> list[str]:
    """Every command line of a workflow's steps."""
    jobs = WORKFLOWS[workflow]["jobs"].values()
    return [line for job in jobs for step in job.get("steps", ()) for line in step.get("run", "").splitlines()]


def matrix(workflow: str, job: str, axis: str) -> list[str]:
    return WORKFLOWS[workflow]["jobs"][job]["strategy"]["matrix"][axis]


def named(extra: str) -> set[str]:
    return {re.match(r"[\w-]+", requirement)[0] for requirement in EXTRAS[extra]}


def test_the_recipes_that_newcomers_expect_are_there():
    assert {"setup", "test", "lint", "docs", "bench", "soak", "mutants"} <= RECIPES


@pytest.mark.parametrize("file", re.findall(r"\b((?:tests|docs|\.ci)/[\w/]*\w+(?:\.py)?)(?=\s|$)", JUSTFILE))
def test_every_file_that_a_recipe_runs_exists(file):
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_workflows_only_install_run_recipes_and_the_gate(workflow):
    assert commands(workflow)
    for line in commands(workflow):
        program, *words = line.split()
        if program == "just":
            assert words[0] in RECIPES, line
        elif program == "python":
            extras = re.search(r"pip install -e '\.\[([\w,]+)\]'$", line)
            assert extras, line
            assert set(extras[1].split(",")) <= set(EXTRAS), line
        else:
            assert line == ".ci/run"


def test_the_gate_checks_style_types_and_docs_by_the_same_recipes():
    lines = map(str.strip, (ROOT / ".ci" / "run").read_text().splitlines())
    assert {"just lint", "just docs"} <= set(lines)


def test_continuous_integration_covers_every_python_version():
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert versions == ["3.11", "3.12", "3.13", "3.14"] == matrix("ci.yml", "gate", "python")
    assert PROJECT["requires-python"] == f">={versions[0]}"
    for page in ("README.md", "CONTRIBUTING.md", "docs/index.md", "docs/start.md"):
        assert f"Python {versions[0]} to {versions[-1]}" in (ROOT / page).read_text(encoding="utf-8"), page


def test_a_release_is_tested_before_it_is_published_without_a_password():
    jobs = WORKFLOWS["release.yml"]["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in WORKFLOWS["ci.yml"][True]  # YAML 1.1 reads `on` as true
    assert sorted(jobs["publish"]["needs"]) == sorted(jobs.keys() - {"publish"})
    assert commands("release.yml")[1:] == ['just check-tag "$TAG"', "just wheel", "just try-wheel"]
    writes = {name: job["permissions"] for name, job in jobs.items() if "permissions" in job}
    assert writes == {"publish": {"id-token": "write"}}
    assert WORKFLOWS["release.yml"]["permissions"] == {"contents": "read"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


@pytest.fixture(scope="module")
def urls():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("project_urls", ROOT / "docs" / "project_urls.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOME = "https://code.example/team/streamkit"
PLACEHOLDER = "https://repository.invalid/streamkit"
WRONG_TAG = "the tag v0.0.1 is not v1.2.3, the version in streamkit/core/version.py"
NO_ADDRESS = f"REPOSITORY in streamkit/core/version.py is the placeholder {PLACEHOLDER}; write the repository's address"


@pytest.mark.parametrize(
    ("tag", "repository", "problems"),
    [
        ("v1.2.3", HOME, []),
        ("v0.0.1", HOME, [WRONG_TAG]),
        ("v1.2.3", PLACEHOLDER, [NO_ADDRESS]),
        ("v0.0.1", PLACEHOLDER, [WRONG_TAG, NO_ADDRESS]),
    ],
)
def test_a_release_has_the_version_as_its_tag_and_the_repository_s_address(urls, tag, repository, problems):
    assert urls.release_problems(tag, "1.2.3", repository) == problems


def test_check_tag_refuses_what_must_not_be_released(urls):
    completed = subprocess.run(["just", "check-tag", "0.0.1"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 1
    for problem in urls.release_problems("0.0.1", __version__, REPOSITORY):
        assert f"{problem}\n" in completed.stderr


def test_the_addresses_of_the_project_follow_from_one_constant(urls):
    assert set(PROJECT["dynamic"]) == {"urls", "version"}
    assert "urls" not in PROJECT
    assert urls.project_urls(HOME)["Issues"] == f"{HOME}/issues"
    assert all(address.startswith(HOME) for address in urls.project_urls(HOME).values())
    assert urls.project_urls(PLACEHOLDER) == {}
    assert urls.constant("REPOSITORY", ROOT) == REPOSITORY


def test_the_readme_says_whether_the_project_is_on_the_package_index(urls):
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert ("The package index does not have this project yet" in text) == urls.is_placeholder(REPOSITORY)
    assert "`streamkit` there is another one" in text


def test_an_image_is_built_with_the_hooks_of_the_build():
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    hooks = [
        hatch["build"]["targets"]["wheel"]["hooks"]["custom"]["path"],
        hatch["metadata"]["hooks"]["custom"]["path"],
    ]
    context = (ROOT / ".dockerignore").read_text().splitlines()
    assert [hook for hook in hooks if f"!{hook}" not in context] == []


def with_nested(extra: str) -> set[str]:
    """The extra, and those that its requirements name."""
    nested = re.findall(r"streamkit-video\[(.+?)\]", " ".join(EXTRAS[extra]))
    return {extra}.union(*(with_nested(name) for names in nested for name in names.split(",")))


def test_the_extra_all_has_what_a_cpu_can_use():
    for_development = {"bench", "dev", "docs", "lint", "mutants", "test", "train"}
    assert with_nested("all") == EXTRAS.keys() - for_development - {"gpu"}


def test_the_nightly_mutants_are_of_packages():
    tested = {path.parent.name for path in (ROOT / "streamkit").glob("*/__init__.py") if _tests_of(path.parent.name)}
    assert matrix("nightly.yml", "mutants", "package") == sorted(tested)


def _tests_of(package: str) -> list[Path]:
    return list((ROOT / "tests" / package).rglob("test_*.py"))


def test_the_nightly_workflow_runs_every_test_without_test_data_and_with_it():
    jobs = WORKFLOWS["nightly.yml"]["jobs"]
    outside = jobs["readme"]
    inside = jobs["readme-with-data"]
    for job in (outside, inside):
        assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
        assert job["env"]["STREAMKIT_LONG_TESTS"] == 1
    assert outside["env"]["STREAMKIT_NO_TEST_DATA"] == 1
    (volume,) = inside["container"]["volumes"]
    assert volume.split(":")[1] == inside["env"]["STREAMKIT_TEST_DATA"]
    gate = (ROOT / ".ci" / "run").read_text()
    assert '[ "${STREAMKIT_LONG_TESTS:-}" = 1 ] && marks="not soak"' in gate
    assert gate.count('-m "$marks"') == 2


def test_the_nightly_workflow_measures_the_cpu():
    assert WORKFLOWS["nightly.yml"]["jobs"]["bench"]["steps"][-1]["run"] == "just bench"


def test_the_extra_dev_is_all_that_a_contributor_needs():
    assert named("dev") == {PROJECT["name"], "rust-just"}
    assert "streamkit-video[docs,lint,test]" in EXTRAS["dev"]
    assert {"pytest", "hypothesis"} <= named("test")
    assert {"mypy", "pre-commit", "ruff"} <= named("lint")
    assert {"mkdocs-material", "mkdocstrings"} <= named("docs")


def test_commit_hooks_use_the_tools_of_the_extra_lint():
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    local = next(repo["hooks"] for repo in repos if repo["repo"] == "local")
    assert {hook["entry"].split()[0] for hook in local} == {"ruff", "mypy"} <= named("lint")
    assert all(hook["language"] == "system" for hook in local)
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+", repo["rev"]) for repo in repos if repo["repo"] != "local")


def test_type_checkers_find_the_marker_of_typed_packages():
    assert (ROOT / "streamkit" / "py.typed").is_file()
