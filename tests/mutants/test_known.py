"""The known mutants fit the code and the tests that they name."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from run import ROOT, NamedMutant, mirrored_tests  # the path is set just above

ALL = NamedMutant.read()


def test_names_are_unique():
    assert len({mutant.name for mutant in ALL}) == len(ALL)


@cache
def text_of(path: str) -> str:
    return (ROOT / path).read_text()


@pytest.mark.parametrize("package", sorted({Path(mutant.file).parts[1] for mutant in ALL}))
def test_the_known_mutants_of_a_package_fit_its_code_and_name_tests_that_are_there(package):
    for mutant in (mutant for mutant in ALL if Path(mutant.file).parts[1] == package):
        text = text_of(mutant.file)
        mutated = mutant.mutate(text)
        assert mutated != text, mutant.name
        ast.parse(mutated)
        for path, _, name in (test.partition("::") for test in mutant.tests):
            assert name.partition("[")[0] in text_of(path), (mutant.name, path)


def test_the_tests_of_a_module_are_those_that_mirror_it(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert "tests/rules/test_engine.py" in mirrored_tests("streamkit/rules/engine.py")
    assert mirrored_tests("streamkit/rules/no_such_module.py") == ("tests/rules",)
    assert mirrored_tests("streamkit/serve/routes/events.py")[0] == "tests/serve/test_events.py"
    assert mirrored_tests("streamkit/serve/store/sample_table.py") == ("tests/serve/test_store.py",)
    with pytest.raises(SystemExit, match=r"no tests mirror streamkit/no_such_package/module\.py"):
        mirrored_tests("streamkit/no_such_package/module.py")


def test_a_mutant_whose_text_stands_twice_is_refused():
    with pytest.raises(ValueError, match="once, found 2 times"):
        NamedMutant("n", "f.py", "a", "b", ()).mutate("a a")
