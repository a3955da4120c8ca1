"""`docs` opens the site, or names the first page of its text and how to build the site."""

import re
import webbrowser

import pytest
from click.testing import CliRunner

from streamkit.cli import cli
from streamkit.cli import docs as command
from streamkit.core.errors import StreamkitError


@pytest.fixture
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def make(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<html>")
    return path


def test_a_wheel_has_its_site_in_the_package(tmp_path):
    package = tmp_path / "site-packages" / "streamkit"
    make(package.parent / "site" / "index.html")  # of another project
    with pytest.raises(StreamkitError, match=r"this installation has no documentation in .*docs_site; streamkit list"):
        command.first_page(package)
    page = make(package / "docs_site" / "index.html")
    assert command.first_page(package) == page


def test_a_checkout_has_the_site_that_just_docs_builds(tmp_path):
    package = tmp_path / "streamkit"
    make(package / "docs_site" / "index.html")  # of an older build
    (tmp_path / "mkdocs.yml").write_text("")
    assert command.first_page(package) == tmp_path / "docs" / "index.md"
    page = make(tmp_path / "site" / "index.html")
    assert command.first_page(package) == page


@pytest.mark.parametrize(("variable", "opens"), [("DISPLAY", True), ("BROWSER", True), (None, False)])
def test_docs_prints_the_address_and_opens_it_on_a_desktop(monkeypatch, tmp_path, opened, variable, opens):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "x")
    monkeypatch.setattr(command.sys, "platform", "linux")
    page = make(tmp_path / "with space" / "index.html")
    monkeypatch.setattr(command, "first_page", lambda: page)
    completed = CliRunner().invoke(cli, ["docs"])
    assert completed.exit_code == 0, completed.output
    assert completed.output == f"{page.as_uri()}\n"
    assert "with%20space" in completed.output
    assert opened == ([page.as_uri()] if opens else [])


def test_a_checkout_without_a_site_shows_the_pages_as_text(monkeypatch, opened):
    monkeypatch.setenv("DISPLAY", "x")
    page = command.PACKAGE.parent / "docs" / "index.md"
    monkeypatch.setattr(command, "first_page", lambda: page)
    completed = CliRunner().invoke(cli, ["docs"])
    assert completed.exit_code == 0
    assert completed.stdout == f"{page.as_uri()}\n"
    assert page.read_text(encoding="utf-8").startswith("# streamkit")
    assert re.search(
        r"to build the site: python -m pip install -e '.*\[docs\]' && python -m mkdocs build\n", completed.stderr
    )
    assert opened == []  # a browser would download it
