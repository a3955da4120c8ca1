"""`docs` opens the site that is there, or says how to build it."""

import webbrowser

import pytest
from click.testing import CliRunner

from streamkit.cli import cli
from streamkit.cli import docs as command
from streamkit.core.errors import StreamkitError


@pytest.fixture
def opened(monkeypatch):
    found = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


def make(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<html>")
    return path


def test_a_wheel_has_its_site_in_the_package(tmp_path):
    package = tmp_path / "site-packages" / "streamkit"
    make(package.parent / "site" / "index.html")  # of another project
    with pytest.raises(StreamkitError, match=r"this installation has no documentation in .*docs_site; streamkit list"):
        command.index(package)
    made = make(package / "docs_site" / "index.html")
    assert command.index(package) == made


def test_a_checkout_has_the_site_that_just_docs_builds(tmp_path):
    package = tmp_path / "streamkit"
    make(package / "docs_site" / "index.html")  # of an older build
    (tmp_path / "mkdocs.yml").write_text("")
    with pytest.raises(StreamkitError, match=f"not built; run in {tmp_path}: just docs"):
        command.index(package)
    made = make(tmp_path / "site" / "index.html")
    assert command.index(package) == made


@pytest.mark.parametrize(("variable", "opens"), [("DISPLAY", True), ("BROWSER", True), (None, False)])
def test_it_prints_the_address_and_opens_it_where_there_is_a_screen(monkeypatch, tmp_path, opened, variable, opens):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "x")
    monkeypatch.setattr(command.sys, "platform", "linux")
    made = make(tmp_path / "with space" / "index.html")
    monkeypatch.setattr(command, "index", lambda: made)
    done = CliRunner().invoke(cli, ["docs"])
    assert done.exit_code == 0, done.output
    assert done.output == f"{made.as_uri()}\n"
    assert "with%20space" in done.output
    assert opened == ([made.as_uri()] if opens else [])
