"""Hooks of the documentation site (mkdocs.yml): reference pages from the code, and files that pages link to.

The pages of `generated` exist in the built site only. A link to a file outside `docs/`, such as an example, leads to a
page that shows the file, so the site needs no other host.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import itertools
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
if str(DOCS) not in sys.path:
    sys.path.insert(0, str(DOCS))
import reference_pages  # noqa: E402, F401  # while its folder is in the path: MkDocs removes it after this file

PROJECT = {
    "AGENTS.md": "project/agents.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "project/readme.md",
    "SECURITY.md": "security.md",
}
"""Pages at the root of the repository, and where the site has them."""

NOTES = ("docs/decisions/", "docs/figures/", "docs/soaks/")
"""Folders whose Markdown is for contributors: mkdocs.yml excludes it, and a link to it shows the file."""

API = {
    "reference/plugin_api.md": "streamkit.plugin_api",
    "reference/testing.md": "streamkit.testing.kit",
}

PACKAGE = {
    "Pipelines": ("run", "Pipeline", "FrameStream", "PushSource"),
    "Frames and results": ("Frame", "Detections", "Event", "Color", "Surface", "DLPackArray", "Nv12Planes"),
    "Stages": (
        "stage",
        "FrameStage",
        "StreamStage",
        "BatchStage",
        "Source",
        "Sink",
        "Batch",
        "Device",
    ),
    "Types of options": ("Seconds", "Bytes", "Count", "Score", "Pixels", "Point"),
    "Errors": ("StreamkitError", "ConfigError", "DeviceError", "SourceError", "PipelineEnded"),
}
"""What `import streamkit` offers, by task."""

_SUMMARY = "Video analytics pipelines as a YAML: decode, detect, track, count, draw, record and send, on a GPU or a CPU"
page_texts: dict[str, str] = {}
"""The Markdown of the pages that a build has read, by their place; `on_post_build` writes it beside the HTML."""

_API_BLOCK = re.compile(r"^::: ([\w.]+)\n(?:    options: .*\n)?", re.MULTILINE)
_LAST = "---\nsearch:\n  boost: 0.2\n---\n\n"  # front matter of pages that a search should find last

_LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
_CODE = re.compile(r"^(```|~~~).*?^\1 *$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<link\b(?![^>]*\brel=["']?(?:canonical|next|prev))[^>]*\bhref=["']?((?:https?:)?//[^"'\s>]+)"""
    r"""|<\w+[^>]*\bclass=["']?mermaid\b"""  # its script is loaded from another host
)
_LANGUAGES = {
    ".md": "markdown",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".py": "python",
    ".json": "json",
    ".toml": "toml",
    ".proto": "protobuf",
}
_TEXT = (*_LANGUAGES, ".service", ".avsc", ".txt", "")


@functools.cache
def generated() -> dict[str, str]:
    """Markdown by the page's place in the site."""
    pages = {place: (ROOT / name).read_text(encoding="utf-8") for name, place in PROJECT.items()}
    pages |= {place: f"# `{module}`\n\n::: {module}\n" for place, module in API.items()}
    pages["reference/streamkit.md"] = "\n".join(_package())
    pages |= dict(_reference())
    pages["examples.md"] = "\n".join(_examples())
    pages |= {_place(name): _shown(name) for name in _example_files()}
    for source, text in [*_written(), *pages.items()]:
        pages |= {_place(name): _shown(name) for name in _linked(source, text) if _place(name) not in pages}
    return {
        place: (_LAST if place.startswith(("project/", "changelog")) else "") + text for place, text in pages.items()
    }


_INDEX = """# Reference

These pages are made from the code, so they are complete for this version.

- A YAML: [every key of a pipeline](pipeline.md), [every stage with its options](stages/index.md), [alarms](alarms.md),
  [rule language](../rule-language.md)
- A network: [keys of model cards, network families, and the cards that ship](model-cards.md)
- Results: [fields of records](records.md), [events](events.md)
- A running pipeline: [HTTP API](http-api.md), [its bodies](http-bodies.md), [metrics](metrics.md)
- A terminal: [command line](cli.md)
- Python: [streamkit](streamkit.md), [streamkit.plugin_api](plugin_api.md), [streamkit.testing.kit](testing.md)
"""


def _package() -> Iterator[str]:
    """The page of what `import streamkit` offers."""
    yield "# `streamkit`\n\n[Python](../python.md) shows how to use it.\n"
    for title, names in PACKAGE.items():
        yield f"## {title}\n"
        yield from (
            f"::: streamkit.{name}\n    options: {{show_root_heading: true, heading_level: 3}}\n" for name in names
        )


def _reference() -> Iterator[tuple[str, str]]:
    """The pages of the reference, but for those of Python."""
    from reference_pages import (
        alarm_facts,
        command_line,
        event_table,
        http_api,
        metrics_table,
        model_cards,
        pipeline_keys,
        record_fields,
        stage_pages,
    )

    from streamkit.core.stage import default_registry

    registry = default_registry()
    yield "reference/index.md", _INDEX
    yield from ((f"reference/stages/{name}.md", text) for name, text in stage_pages.pages(registry))
    parts_by_page = {
        "pipeline": pipeline_keys.page(registry),
        "alarms": alarm_facts.page(),
        "model-cards": model_cards.page(),
        "records": record_fields.page(),
        "events": event_table.page(),
        "http-api": http_api.page(),
        "http-bodies": http_api.bodies_page(),
        "metrics": metrics_table.page(),
        "cli": command_line.page(),
    }
    yield from ((f"reference/{name}.md", "\n".join(parts)) for name, parts in parts_by_page.items())


def _examples() -> Iterator[str]:
    """The page of all examples: each with the comment at its head."""
    yield "# Examples\n\nOne idea a file. `python run.py examples/detect.yaml` runs one in a checkout.\n"
    yield "| example | what it shows |\n| --- | --- |"
    for name in _example_files():
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        head = next((at for at, line in enumerate(lines) if not line.startswith("# ")), len(lines))
        text = " ".join(line[2:].strip() for line in lines[:head])
        first = re.split(r"(?<=[.?]) ", text, maxsplit=1)[0].replace("|", "&#124;")
        yield f"| [{name.removeprefix('examples/')}]({_place(name)}) | {first} |"


def _example_files() -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.yaml"))


def _written() -> Iterator[tuple[str, str]]:
    """The pages that are files in docs/, by their place."""
    for path in DOCS.rglob("*.md"):
        if not _is_note(path.relative_to(ROOT).as_posix()):
            yield path.relative_to(DOCS).as_posix(), path.read_text(encoding="utf-8")


def _is_note(name: str) -> bool:
    return name.startswith(NOTES) and name.endswith(".md")


def _home(place: str) -> str:
    """Where a page of the site is in the repository, for the links in it."""
    return next((name for name, there in PROJECT.items() if there == place), f"docs/{place}")


def _place(name: str) -> str:
    """Where the site has a file of the repository."""
    if name in PROJECT:
        return PROJECT[name]
    if name.startswith("docs/") and not _is_note(name):
        return name.removeprefix("docs/")
    return f"project/{name}.md" if (ROOT / name).is_file() and name.endswith(_TEXT) else f"project/{name}/index.md"


def _targets(source: str, text: str) -> Iterator[tuple[str, str]]:
    """The links of a page to files of the repository outside the site: as written, and the file's name."""
    for link in _LINK.findall(_CODE.sub("", text)):
        path = link.partition("#")[0]
        home = _home(source)
        name = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
        outside = home in PROJECT or not name.startswith("docs/") or _is_note(name)
        if path and ":" not in path and outside and (ROOT / name).exists():
            yield link, name


def _linked(source: str, text: str) -> Iterator[str]:
    """The files outside the site that a page links to and that have no page of their own."""
    names = (name for _, name in _targets(source, text) if name not in PROJECT)
    return (name for name in names if _is_note(name) or not name.startswith("docs/"))


def _shown(name: str) -> str:
    """A page that shows a file, or what is in a folder."""
    path = ROOT / name
    if path.is_dir():
        names = sorted(child.name for child in path.iterdir() if not child.name.startswith((".", "__")))
        return "\n".join([f"# {name}/", "", *(f"- `{child_name}`" for child_name in names), ""])
    language = _LANGUAGES.get(path.suffix, "text")
    return f'# {path.name}\n\n````{language} title="{name}"\n{path.read_text(encoding="utf-8")}````\n'


def relinked(place: str, text: str) -> str:
    """A page's text with its links leading to pages of the site."""
    targets = dict(_targets(place, text))

    def new(match: re.Match[str]) -> str:
        if match[1] not in targets:
            return match[1]
        anchor = "" if _is_note(targets[match[1]]) else "".join(match[1].partition("#")[1:])
        return posixpath.relpath(_place(targets[match[1]]), posixpath.dirname(place) or ".") + anchor

    return _LINK.sub(new, text)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the pages of the folders in `nav`. MkDocs reports pages that it lacks, and those that do not exist."""
    assert config.nav is not None
    config.nav = [_listed(entry) for entry in config.nav]
    return config


def _listed(entry: Any) -> Any:
    """An entry of the navigation, with the pages of stages in place of their folder's name."""
    if entry == "reference/stages":
        return {"Stages": _stage_nav()}
    if not isinstance(entry, dict):
        return entry
    ((title, value),) = entry.items()
    return {title: [_listed(part) for part in value]}


def _stage_nav() -> list[Any]:
    """The pages of the stages, by what they are for."""
    from reference_pages.stage_pages import groups

    from streamkit.core.stage import default_registry

    place = "reference/stages/{}.md".format
    grouped = [{title: [*map(place, names)]} for title, names in groups(default_registry()).items()]
    return [place("index"), *grouped, place("fault")]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for place, text in generated().items():
        if files.get_file_from_path(place) is None:
            files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files outside docs/ to their pages, and draw diagrams that are chains."""
    text = relinked(page.file.src_uri, markdown)
    page_texts[page.file.src_uri] = _API_BLOCK.sub(lambda block: "\n".join(_api_text(block[1])), text)
    return _MERMAID.sub(_chain, text)


def _api_text(name: str) -> Iterator[str]:
    """The signatures and docstrings of a module's public names, or of one name, as Markdown."""
    documented = _imported(name)
    if not inspect.ismodule(documented):
        yield from _signature_text(name.rpartition(".")[2], documented, "###")
        return
    yield inspect.getdoc(documented) or ""
    for public in documented.__all__:
        yield from _signature_text(public, getattr(documented, public), "###")


def _signature_text(name: str, documented: Any, marks: str) -> Iterator[str]:
    """The signature and the docstring of a class or a function, and of the public methods of a class."""
    yield f"\n{marks} `{name}`\n"
    if not callable(documented):
        return
    with contextlib.suppress(ValueError, TypeError):  # some types have no signature
        yield f"```python\n{name}{inspect.signature(documented)}\n```\n"
    yield inspect.getdoc(documented) or ""
    methods = vars(documented).items() if inspect.isclass(documented) else ()
    for method, function in methods:
        if inspect.isfunction(function) and not method.startswith("_"):
            yield from _signature_text(f"{name}.{method}", function, "####")


def _imported(name: str) -> Any:
    """The module or the public name that a dotted name stands for."""
    module, _, attribute = name.rpartition(".")
    if importlib.util.find_spec(module) is not None and hasattr(importlib.import_module(module), attribute):
        return getattr(importlib.import_module(module), attribute)
    return importlib.import_module(name)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Name the pages of the reference for the style sheet."""
    return f'<div class="reference">{html}</div>' if page.file.src_uri.startswith("reference/") else html


def _chain(match: re.Match[str]) -> str:
    """A diagram of boxes that follow each other, as a list; others stay text, since their script is on another host."""
    arrows = [line.split("-->") for line in match[1].splitlines() if "-->" in line]
    boxes = [re.fullmatch(r'\s*(\w+)(?:\["(.*)"\])?\s*', box) for arrow in arrows for box in arrow]
    named = {box[1]: box[2] for box in boxes if box is not None and box[2]}
    ends = [tuple(box[1] if box else "" for box in boxes[at : at + 2]) for at in range(0, len(boxes), 2)]
    if not ends or any(before[1] != after[0] for before, after in itertools.pairwise(ends)):
        return match[0]
    texts = (named.get(name, name) for name in (ends[0][0], *(end for _, end in ends)))
    items = (re.sub(r"[\w/]+\.py:[\w.]+", r"<code>\g<0></code>", text) for text in texts)
    return f'<ol class="chain">{"".join(f"<li>{text}</li>" for text in items)}</ol>'


def on_post_build(config: MkDocsConfig) -> None:
    """Write the pages as Markdown, remove source maps, and reject pages that load something from another host."""
    from mkdocs.exceptions import PluginError

    site = Path(config.site_dir)
    assert config.nav is not None
    (site / "llms.txt").write_text("\n".join(llms_text(config.nav, page_texts)) + "\n", encoding="utf-8")
    for place, text in page_texts.items():
        (site / place).write_text(text, encoding="utf-8")
    for path in site.rglob("*.map"):
        path.unlink()
    for path in site.rglob("*.html"):
        if address := foreign(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.relative_to(site)} loads {address} from another host, and the site works offline")


def llms_text(nav: list[Any], texts: Mapping[str, str]) -> Iterator[str]:
    """The lines of llms.txt: every page of the navigation, by section, with its title and its first sentence.

    Args:
        nav: the navigation.
        texts: the Markdown of the pages, by their place.
    """
    yield f"# streamkit\n\n> {_SUMMARY}\n"
    yield "Each page is Markdown. `streamkit mcp` offers tools to list stages, and to check and run a pipeline."
    for entry in nav:
        title, below = next(iter(entry.items())) if isinstance(entry, dict) else ("Start", [entry])
        yield f"\n## {title}\n"
        for place in _names(below if isinstance(below, list) else [below]):
            heading = re.search(r"^# +(.+)$", texts[place], re.MULTILINE)
            yield f"- [{place if heading is None else heading[1]}]({place}){_about(texts[place])}"


def _names(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of the navigation."""
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        yield from _names(value) if isinstance(value, list) else [value]


def _about(text: str) -> str:
    """The first sentence of a page after a colon; empty if it begins with no text."""
    paragraphs = (part for part in text.split("\n\n") if part[:1].isalpha() or part[:1] == "`" != part[1:2])
    first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(next(paragraphs, "").split()))
    sentence = re.match(r".*?[.:](?= |$)", first)
    return "" if sentence is None else f": {sentence[0].rstrip(':.')}"


def foreign(html: str) -> str:
    """The first address at another host that a page loads by itself; empty if there is none."""
    match = _LOADED.search(html)
    return "" if match is None else match[1] or match[2] or "mermaid"
