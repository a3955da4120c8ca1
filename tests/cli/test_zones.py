"""`streamkit zones`: the editor of areas and lines over a source, in a real browser, for a YAML that does not run."""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from contextlib import closing, contextmanager

import pytest
import yaml
from support.default_network import downloadable_as_default, shipped_as_default
from support.pages import CHROMIUM, chromium_fixture, expect  # noqa: F401  fixtures

PIPELINE = """\
sources:
  yard: {uri: street.mp4}
  gate: {uri: other.mp4}
stages:
  detect: {model: demo}
  track: {}
  till: {stage: zone, polygon: [[0, 0], [90, 0], [90, 90]]}   # at the till
  draw: {blur: {zone: [[0, 0], [639, 0], [639, 359], [0, 359]]}}
  video: {path: 'out/{source}.mp4'}
  jsonl: {path: 'out/{source}.jsonl'}
"""


@pytest.fixture
def folder(root, tmp_path):
    """A folder with two videos of a street, and the shipped network as the one that `auto` names."""
    shipped_as_default(tmp_path)
    for name in ("street.mp4", "other.mp4"):
        (tmp_path / name).symlink_to(root / "samples" / "street.mp4")
    return tmp_path


@contextmanager
def editor(root, folder, *words):
    """The address of the editor, with its token."""
    line = [sys.executable, str(root / "run.py"), "zones", *words, "--device", "cpu"]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        texts = []
        while not texts or "http://" not in texts[-1]:
            texts.append(process.stderr.readline())
            assert process.poll() is None, texts
        try:
            yield re.search(r"http://127\.0\.0\.1:\d+/\S*", texts[-1])[0], "".join(texts)
        finally:
            process.kill()


def sources(address):
    with urllib.request.urlopen(address.split("#")[0] + "api/v1/sources", timeout=10) as answer:
        return [source["id"] for source in json.load(answer)]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium; apt-get install chromium-headless-shell")
def test_a_new_pipeline_is_edited_over_the_picture(root, folder, chromium):
    with editor(root, folder, "street.mp4") as (address, log), closing(chromium.new_page()) as page:
        assert "pipeline.yaml is new" in log
        page.goto(address)
        expect(page.locator(".board img")).to_be_visible(timeout=20_000)
        page.get_by_role("textbox", name="Name of shape 1").fill("pavement")
        page.get_by_role("textbox", name="Name of shape 1").press("Enter")
        page.get_by_role("button", name="Show changes and apply").click()
        page.get_by_role("dialog").get_by_role("button", name="Save and apply").click()
        expect(page.locator(".zones .state")).to_have_text("pipeline.yaml is saved and applied.", timeout=20_000)
    stages = yaml.safe_load((folder / "pipeline.yaml").read_text())["stages"]
    assert list(stages) == ["detect", "track", "area", "crossing", "jsonl"]
    assert list(stages["area"]["polygon"]) == ["pavement"]
    assert not (folder / "out").exists()


def test_one_source_of_a_pipeline_is_shown_with_what_hides_and_nothing_else(root, folder):
    (folder / "shop.yaml").write_text(PIPELINE)
    with editor(root, folder, "yard", "shop.yaml") as (address, _):
        assert sources(address) == ["yard"]
        with urllib.request.urlopen(address.split("#")[0] + "api/v1/stages", timeout=10) as answer:
            assert {stage["id"].partition(".")[0] for stage in json.load(answer)} == {"detect", "track", "till", "draw"}
    assert not (folder / "out").exists()
    assert (folder / "shop.yaml").read_text() == PIPELINE


def test_without_its_network_a_new_pipeline_is_not_written(here, root, folder):
    shutil.rmtree(folder / "models")
    downloadable_as_default(folder, b"network", "http://127.0.0.1:9/network.onnx")
    completed = here("zones", "street.mp4", "--device", "cpu", cwd=folder)
    assert completed.returncode == 2
    assert "cannot be fetched" in completed.stderr
    assert not (folder / "pipeline.yaml").exists()


def test_a_source_with_quotes_in_its_name_is_shown(root, folder):
    (folder / "shop.yaml").write_text(PIPELINE)
    name = """it's "new".mp4"""
    (folder / name).symlink_to(root / "samples" / "street.mp4")
    with editor(root, folder, name, "shop.yaml") as (address, _):
        assert sources(address) == ["it_s__new_"]


def test_a_source_that_the_pipeline_lacks_is_shown_by_its_address(root, folder):
    (folder / "shop.yaml").write_text(re.sub("  yard.*\n", "", PIPELINE))
    with editor(root, folder, "street.mp4", "shop.yaml") as (address, _):
        assert sources(address) == ["street"]


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (None, ("missing.mp4",), "missing.mp4"),
        ("sources: {a: street.mp4}\nstages:\n  jsonl: {path: x.jsonl}\n", ("a",), "has no stage with areas or lines"),
        ("sources: {a: street.mp4}\nstages:\n  detct: {}\n", ("a",), "pipeline.yaml:3:3: "),
    ],
)
def test_mistakes_are_reported_and_write_nothing(here, folder, text, words, message):
    if text is not None:
        (folder / "pipeline.yaml").write_text(text)
    completed = here("zones", *words, "--device", "cpu", cwd=folder)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert text is not None or not (folder / "pipeline.yaml").exists()
