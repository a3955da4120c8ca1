"""`docs` opens the site, or the pages converted to HTML where it is not built; `docs PAGE` prints a page."""

import re
import webbrowser
from pathlib import Path
from urllib.request import url2pathname

import pytest
from click.testing import CliRunner

from streamkit.cli import cli
from streamkit.cli import docs as command
from streamkit.cli.docs_pages import convert
from streamkit.core.errors import ConfigError, StreamkitError


@pytest.fixture
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open", addresses.append)
    return addresses


def make(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<html>")
    return path


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_wheel_has_its_site_in_the_package(tmp_path):
    package = tmp_path / "site-packages" / "streamkit"
    make(package.parent / "site" / "index.html")  # of another project
    make(package.parent / "docs" / "index.md")
    with pytest.raises(StreamkitError, match=r"this installation has no documentation in .*docs_site; streamkit list"):
        command.first_page(package)
    make(package / "docs_site" / "index.md")
    page = make(package / "docs_site" / "index.html")
    assert command.first_page(package) == page


def test_a_checkout_has_the_site_that_just_docs_builds(tmp_path):
    package = tmp_path / "streamkit"
    make(package / "docs_site" / "index.html")  # of an older build
    make(tmp_path / "docs" / "index.md")
    (tmp_path / "mkdocs.yml").write_text("")
    assert command.first_page(package).is_relative_to(tmp_path / "cache")
    page = make(tmp_path / "site" / "index.html")
    assert command.first_page(package) == page


def links_of(page):
    return re.findall(r'(?:href|src)="([^"]+)"', page.read_text(encoding="utf-8"))


def leads_nowhere(page, link):
    path, _, anchor = link.partition("#")
    if path.startswith(("http:", "https:", "mailto:")):
        return False
    file = path.startswith("file:")
    target = Path(url2pathname(path.removeprefix("file://"))) if file else page.parent / path if path else page
    has_anchor = not anchor or file or f'id="{anchor}"' in target.read_text(encoding="utf-8")
    return not target.exists() or not has_anchor


def test_the_pages_of_a_checkout_are_shown_without_a_build():
    first = convert(command.PACKAGE.parent / "docs")
    assert '<h1 id="streamkit">streamkit</h1>' in first.read_text(encoding="utf-8")
    links = [(page, link) for page in first.parent.rglob("*.html") for link in links_of(page)]
    assert len(links) > 1000
    assert [(page.name, link) for page, link in links if leads_nowhere(page, link)] == []


def test_a_link_to_what_a_wheel_lacks_is_text(tmp_path):
    make(tmp_path / "index.md").write_text("# A\n\n[b](../b.yaml) [c](c.md) [d](d.md#e)\n")
    make(tmp_path / "d.md").write_text("# D\n\n## E\n")
    body = convert(tmp_path).read_text(encoding="utf-8")
    assert '<p><a>b</a> <a>c</a> <a href="d.html#e">d</a></p>' in body


def test_pages_that_changed_are_converted_again(tmp_path):
    page = make(tmp_path / "index.md")
    page.write_text("# Before\n")
    first = convert(tmp_path)
    page.write_text("# After\n")
    assert convert(tmp_path) == first
    assert ">After</h1>" in first.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "heading"),
    [("rules", "# Write rules"), ("rules.md", "# Write rules"), ("track", "# `track`"), ("all", "# All pages")],
)
def test_a_page_is_printed_as_markdown(name, heading):
    completed = CliRunner().invoke(cli, ["docs", name])
    assert completed.exit_code == 0, completed.output
    assert completed.stdout.startswith(f"{heading}\n")


def test_a_page_that_does_not_exist_is_an_error_with_a_proposal():
    with pytest.raises(
        ConfigError, match=r"^there is no page 'ruls'; did you mean 'rules'\?; streamkit docs all lists"
    ):
        CliRunner().invoke(cli, ["docs", "ruls"], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(("variable", "opens"), [("DISPLAY", True), ("BROWSER", True), (None, False)])
def test_docs_prints_the_address_and_opens_it_on_a_desktop(monkeypatch, tmp_path, opened, variable, opens):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "x")
    monkeypatch.setattr("sys.platform", "linux")
    page = make(tmp_path / "with space" / "index.html")
    monkeypatch.setattr(command, "first_page", lambda: page)
    completed = CliRunner().invoke(cli, ["docs"])
    assert completed.exit_code == 0, completed.output
    assert completed.output == f"{page.as_uri()}\n"
    assert "with%20space" in completed.output
    assert opened == ([page.as_uri()] if opens else [])
