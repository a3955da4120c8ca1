import importlib
from pathlib import Path

import pytest

from streamkit.config.pipeline_config import read_text
from streamkit.config.plugins import load_plugins
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Registry, default_registry

ROOT = Path(__file__).resolve().parents[2]
GOOD = "from streamkit import FrameStage, stage\n\n\n@stage({name!r})\nclass Made(FrameStage):\n    '''Do nothing.'''\n"


def load(path, registry=None):
    registry = Registry() if registry is None else registry
    load_plugins(path, registry)
    return registry.names()


def test_plugins_are_loaded_from_files_and_folders(tmp_path):
    for name in ("one", "two", "_hidden"):
        (tmp_path / f"{name}.py").write_text(GOOD.format(name=name))
    (tmp_path / "notes.txt").write_text("no Python")
    assert load(tmp_path / "one.py") == ["one"]
    assert load(tmp_path) == ["one", "two"]


def test_a_second_registry_gets_the_same_classes(tmp_path):
    (tmp_path / "p.py").write_text(GOOD.format(name="p"))
    first = Registry()
    second = Registry()
    load_plugins(tmp_path, first)
    load_plugins(tmp_path, second)
    assert first.get("p") is second.get("p") is not None


def test_an_edited_file_is_loaded_as_new_classes(tmp_path):
    """Also where the edit is in the same second and as long, as Python's own cached files cannot tell."""
    file = tmp_path / "p.py"
    text = GOOD.format(name="p") + "    answer = {}\n"
    kinds = []
    for number in (1, 2, 2, 1):
        file.write_text(text.format(number))
        registry = Registry()
        load_plugins(file, registry)
        kinds.append(registry.get("p"))
    assert [kind.answer for kind in kinds] == [1, 2, 2, 1]
    assert kinds[1] is kinds[2]
    assert kinds[0].__module__ == kinds[3].__module__ != kinds[1].__module__
    assert list(tmp_path.iterdir()) == [file]


def test_an_unreadable_plugin_is_reported(tmp_path):
    (tmp_path / "p.py").symlink_to(tmp_path / "gone.py")
    with pytest.raises(ConfigError, match=r"the plugin .*gone\.py cannot be read: No such file"):
        load(tmp_path)


def test_equal_file_names_in_two_folders_are_separate_plugins(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "p.py").write_text(GOOD.format(name=folder))
    registry = Registry()
    load_plugins(tmp_path / "a", registry)
    load_plugins(tmp_path / "b", registry)
    assert registry.names() == ["a", "b"]


def test_plugins_stay_out_of_the_built_in_stages(tmp_path):
    (tmp_path / "p.py").write_text(GOOD.format(name="outside"))
    load(tmp_path)
    assert default_registry().get("outside") is None


def test_shipped_plugins_load():
    assert load(ROOT / "plugins", default_registry()) == sorted(
        [*default_registry().names(), "count_objects", "hide_region", "simple_track", "tripwire"]
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_that_name\n", r"p\.py:1 cannot be loaded: ModuleNotFoundError: No module named"),
        ("x = 1\n\ny = x +\n", r"p\.py:3 cannot be loaded: SyntaxError: invalid syntax\n    y = x \+\n           \^$"),
        (
            "if 1:\n    y = (1\n",
            r"p\.py:2 .* SyntaxError: '\(' was never closed\n    y = \(1\n        \^$",
        ),
        ("if 1:\nx = 1\n", r"p\.py:2 cannot be loaded: IndentationError: expected an .*\n    x = 1\n    \^$"),
        ("exec('1 +')\n", r"p\.py:1 .* SyntaxError: invalid syntax \(<string>, line 1\)\n    exec\('1 \+'\)$"),
        (
            "def f():\n    raise ValueError('deep')\n\n\nf()\n",
            r"p\.py:2 cannot be loaded: ValueError: deep\n    raise ValueError\('deep'\)$",
        ),
        (
            GOOD.format(name="twice") + GOOD.format(name="twice").replace("Made", "Other"),
            r"two stages claim the name 'twice': Made in streamkit_plugin_p_\w+ and Other in streamkit_plugin_p",
        ),
        (
            GOOD.format(name="x").replace("(FrameStage)", ""),
            r"p\.py:4 cannot be loaded: TypeError: stage 'x': Made must be a subclass of",
        ),
        (
            "import sys\n\nsys.exit(4)\n",
            r"p\.py:3 cannot be loaded: it ends the program; put that under if __name__ == '__main__': or leave it out",
        ),
        (
            "from __future__ import annotations\n" + GOOD.format(name="x") + "    where: Path | None = None\n",
            r"p\.py cannot be loaded: the type of the option 'where' of x cannot be read: NameError: name 'Path' is "
            r"not defined; import the types that it uses at the top of the file, not under TYPE_CHECKING",
        ),
    ],
)
def test_a_failing_plugin_is_reported(tmp_path, text, message):
    (tmp_path / "p.py").write_text(text)
    for _ in range(2):  # nothing half loaded is left behind
        with pytest.raises(ConfigError, match=message):
            load(tmp_path, default_registry())


def test_a_stage_of_a_broken_plugin_gives_no_further_problem(tmp_path):
    (tmp_path / "p.py").write_text("x = (\n")
    text = "plugins: [p.py]\nsources: {a: samples/street.mp4}\nstages:\n  mine: {}\n  jsonll: {path: x}\n"
    first, second = (str(problem) for problem in read_text(text, folder=tmp_path).problems)
    assert first.startswith(f"pipeline.yaml:1:11: the plugin {tmp_path}/p.py:1 cannot be loaded: SyntaxError: ")
    assert second == "pipeline.yaml:5:3: unknown stage 'jsonll'; did you mean 'jsonl'?"
    (tmp_path / "p.py").write_text("")
    texts = [str(problem) for problem in read_text(text, folder=tmp_path).problems]
    assert texts[0] == "pipeline.yaml:4:3: unknown stage 'mine'; did you mean 'infer'?"
    text = text.replace("mine", "quite_another")
    texts = [str(problem) for problem in read_text(text, folder=tmp_path).problems]
    assert texts[0].endswith("unknown stage 'quite_another'; streamkit list shows what there is, plugins: adds to it")


def test_the_source_line_is_that_of_the_current_file(tmp_path):
    for text in ("x = (\n", "yy = [\n"):
        (tmp_path / "p.py").write_text(text)
        with pytest.raises(ConfigError, match=r"\n    " + text[:2]):
            load(tmp_path / "p.py")


def test_a_plugin_that_replaces_a_built_in_stage_is_reported(tmp_path):
    (tmp_path / "p.py").write_text(GOOD.format(name="zone"))
    registry = default_registry()
    notes = load_plugins(tmp_path / "p.py", registry)
    assert notes == ["the stage zone of p.py replaces the built-in stage of that name"]
    assert registry.get("zone").__name__ == "Made"
    assert default_registry().get("zone").__name__ == "Zone"
    assert load_plugins(tmp_path / "p.py", registry) == []  # it stands there already
    text = "plugins: [p.py]\nsources: {a: samples/street.mp4}\nstages: {zone: {}}\n"
    config = read_text(text, folder=tmp_path)
    assert config.problems == []
    assert str(config.warnings[0]) == f"pipeline.yaml:1:11: {notes[0]}"


def test_only_a_single_plugin_may_replace_a_built_in_stage(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(GOOD.format(name="zone"))
    with pytest.raises(
        ConfigError, match=r"two stages claim the name 'zone': Made in streamkit_plugin_a.* and Made in"
    ):
        load(tmp_path, default_registry())


def test_a_missing_plugin_is_reported(tmp_path):
    (tmp_path / "line_counter.py").write_text("")
    with pytest.raises(
        ConfigError, match=r"there is no plugin file or folder .*line_conter\.py; did you mean 'line_counter\.py'\?"
    ):
        load(tmp_path / "line_conter.py")


def test_a_plugin_may_define_dataclasses_and_annotations(tmp_path):
    (tmp_path / "p.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
        "from streamkit import FrameStage, Score, stage\n\n\n"
        "@dataclass\nclass State:\n    n: int = 0\n\n\n"
        "@stage('annotated')\nclass Made(FrameStage):\n    '''Do nothing.'''\n\n    share: Score = 0.5\n"
    )
    from streamkit.core.stage import options

    registry = Registry()
    load_plugins(tmp_path, registry)
    (option,) = options(registry.get("annotated"))
    assert (option.name, option.default) == ("share", 0.5)


def test_a_plugin_imported_by_a_test_is_the_same_module(tmp_path, monkeypatch):
    (tmp_path / "imported_too.py").write_text(GOOD.format(name="imported_too"))
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    with Collecting(registry):
        importlib.import_module("imported_too")
    load_plugins(tmp_path, registry)
    assert registry.names() == ["imported_too"]


def test_a_keyboard_interrupt_is_not_a_problem_of_the_plugin(tmp_path):
    (tmp_path / "p.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load(tmp_path)


def test_subclasses_of_a_stage_are_not_registered_in_a_second_registry(tmp_path):
    (tmp_path / "p.py").write_text(GOOD.format(name="p") + "\n\nclass More(Made):\n    pass\n")
    assert load(tmp_path) == load(tmp_path) == ["p"]
