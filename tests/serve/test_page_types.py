"""The page's modules keep their types, and these agree with what the API answers; every text they name exists."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.page_types import types_of

PAGE = Path("streamkit/serve/page")
TYPES = PAGE / "types.d.ts"
TSC = shutil.which("tsc")


def test_the_types_of_answers_match_the_api(root, server):
    types = types_of(server.open.get("/openapi.json").json())
    if os.environ.get("STREAMKIT_WRITE"):
        (root / TYPES).write_text(types)
    assert (root / TYPES).read_text() == types, "run it with STREAMKIT_WRITE=1, and then fix the modules"


@pytest.mark.skipif(TSC is None, reason="no TypeScript to check with; apt-get install node-typescript")
def test_every_module_passes_the_type_check(root):
    ran = subprocess.run(
        [TSC, "--project", "tests/serve/tsconfig.json"], cwd=root, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout


def test_no_modules_of_the_page_import_each_other(root):
    imports = {}
    for path in (root / PAGE).rglob("*.js"):
        code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
        targets = re.findall(r"""(?:from|import|import\()\s*["'](\.[^"']+\.js)["']""", code)
        imports[path.resolve()] = {(path.parent / target).resolve() for target in targets}
    router = (root / PAGE / "router.js").resolve()
    assert router in imports[(root / PAGE / "views/live.js").resolve()]
    while leaves := {module for module, below in imports.items() if not below & imports.keys()}:
        imports = {module: below for module, below in imports.items() if module not in leaves}
    assert sorted(path.name for path in imports) == []


def texts(root):
    """The keys of the texts, by file."""
    files = (root / PAGE / "strings/en").glob("*.js")
    return {path.name: re.findall(r'^  "([\w.-]+)": "', path.read_text(), re.M) for path in files}


def test_every_text_is_defined_once_in_strings_js(root):
    texts_by_file = texts(root)
    keys = [key for each in texts_by_file.values() for key in each]
    assert len(keys) == len(set(keys)) > 50
    index = (root / PAGE / "strings.js").read_text()
    assert [name for name in texts_by_file if f'"./strings/en/{name}"' not in index] == []


def test_every_text_that_a_module_names_exists(root):
    text_keys = {key for each in texts(root).values() for key in each}
    named = set()
    for path in (root / PAGE).rglob("*.js"):
        if "strings" not in path.parts:
            for argument in re.findall(r"\bt\(([^()]*?)[,)]", path.read_text()):  # also t(yes ? "a" : "b")
                named |= set(re.findall(r'"([\w-]+\.[\w.-]+)"', argument))
    for path in (root / PAGE).glob("*.html"):
        named |= set(re.findall(r'data-t(?:-\w+)?="([^"]+)"', path.read_text()))
    assert len(named) > 50
    assert sorted(named - text_keys) == []
