import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from streamkit.core.errors import MissingPackage
from streamkit.core.text import DISTRIBUTION, did_you_mean, gpu_command, install_command, printable, renamed

ROOT = Path(__file__).resolve().parents[2]


def test_the_install_command_of_a_checkout_installs_the_checkout(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install_command("track") == "python -m pip install -e '.[track]'"
    assert install_command() == "python -m pip install -e '.'"
    assert str(MissingPackage("numba", "track", "track")) == (
        "track needs the package numba; install it with: python -m pip install -e '.[track]'"
    )
    assert gpu_command() == (
        "python -m pip uninstall -y onnxruntime onnxruntime-gpu && python -m pip install -e '.[gpu]'"
    )
    monkeypatch.chdir(tmp_path)
    assert install_command("track") == f"python -m pip install -e '{ROOT}[track]'"
    deleted = tmp_path / "gone"
    deleted.mkdir()
    monkeypatch.chdir(deleted)
    deleted.rmdir()
    assert install_command("track") == f"python -m pip install -e '{ROOT}[track]'"


METADATA = """\
Metadata-Version: 2.4
Name: streamkit-video
Version: 0.1.0
Requires-Dist: av<20,>=18
Requires-Dist: numba<1,>=0.61; extra == 'track'
Requires-Dist: onnxruntime-gpu[cuda,cudnn]<2,>=1.27; extra == 'gpu'
Requires-Dist: numba<1,>=0.61; extra == 'rules'
Requires-Dist: cel-python<1,>=0.4; extra == 'rules'
"""


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        (
            {"METADATA": METADATA, "direct_url.json": '{"archive_info": {}, "url": "file:///tmp/x/made.whl"}'},
            [
                "python -m pip install 'numba<1,>=0.61'",
                "python -m pip install 'numba<1,>=0.61' 'cel-python<1,>=0.4'",
                "python -m pip install 'onnxruntime-gpu[cuda,cudnn]<2,>=1.27'",
                "python -m pip install 'av<20,>=18'",
                "python -m pip install --force-reinstall --no-deps 'file:///tmp/x/made.whl'",
            ],
        ),
        (
            {},
            [
                "python -m pip install 'streamkit_video-9.8.7-py3-none-any.whl[track]'",
                "python -m pip install 'streamkit_video-9.8.7-py3-none-any.whl[rules,track]'",
                "python -m pip install 'streamkit_video-9.8.7-py3-none-any.whl[gpu]'",
                "python -m pip install 'streamkit_video-9.8.7-py3-none-any.whl'",
                "python -m pip install --force-reinstall --no-deps 'streamkit_video-9.8.7-py3-none-any.whl'",
            ],
        ),
    ],
    ids=["wheel", "no metadata"],
)
def test_an_installed_copy_needs_no_package_index(tmp_path, files, lines):
    core = tmp_path / "streamkit" / "core"
    core.mkdir(parents=True)
    shutil.copy(ROOT / "streamkit" / "core" / "text.py", core)
    for folder in (core.parent, core):
        (folder / "__init__.py").write_text("")
    (core / "version.py").write_text('__version__ = "9.8.7"\n')
    about = tmp_path / "streamkit_video-0.1.0.dist-info"
    for name, text in files.items():
        about.mkdir(exist_ok=True)
        (about / name).write_text(text)
    code = (
        "import sys; sys.path = [sys.argv[1], *(path for path in sys.path if 'site-packages' not in path)]\n"
        "from streamkit.core.text import install_command, restore_command\n"
        "for extra in ('track', 'rules,track', 'gpu', ''): print(install_command(extra))\n"
        "print(restore_command())"
    )
    line = [sys.executable, "-I", "-c", code, str(tmp_path)]
    completed = subprocess.run(line, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True)
    assert completed.stdout.splitlines() == lines


def test_the_distribution_is_that_of_the_project_file_and_never_the_other_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION != "streamkit"
    needed = [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    assert [requirement for requirement in needed if requirement.startswith("streamkit[")] == []
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "streamkit").rglob("*.py")]
    assert [page for page in pages if "streamkit[" in page.read_text(encoding="utf-8")] == []
    from_an_index = re.compile(rf"pip install [^\n]*(?<![\w./-]){DISTRIBUTION}(?![\w.-])")
    assert [page for page in pages if from_an_index.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("word", "words", "all_if_few", "text"),
    [
        ("min_scor", ["min_score", "iou"], False, "; did you mean 'min_score'?"),
        ("zebra", ["min_score", "iou"], False, ""),
        ("zebra", ["min_score", "iou"], True, "; known: min_score, iou"),
        ("x", [], True, ""),
    ],
)
def test_similar_names_are_suggested(word, words, all_if_few, text):
    assert did_you_mean(word, words, all_if_few) == text


OBEYED = [
    *range(0x20),
    0x7F,
    *range(0x80, 0xA0),
    0x61C,
    0x200E,
    0x200F,
    *range(0x2028, 0x202F),
    *range(0x2066, 0x206A),
    0xD800,
    0xDBFF,
    0xDC00,
    0xDFFF,
]
SHOWN = [0x20, 0x7E, 0xA0, 0xE9, 0x61B, 0x61D, 0x200D, 0x2010, 0x2027, 0x202F, 0x2065, 0x206A, 0xD7FF, 0xE000, 0x1F600]


@pytest.mark.parametrize("code", OBEYED)
def test_control_characters_are_escaped(code):
    escaped = printable(f"a{chr(code)}b", one_line=True)
    assert escaped == f"a{chr(code).encode('unicode_escape').decode()}b"
    assert escaped.isascii()
    assert escaped.isprintable()


@pytest.mark.parametrize("code", SHOWN)
def test_printable_characters_are_unchanged(code):
    text = f"a{chr(code)}b"
    assert printable(text) == printable(text, one_line=True) == text


def test_multiline_texts_keep_line_breaks_and_tabs():
    assert printable("a\n\tb\r\n") == "a\n\tb\\r\n"


def test_a_former_option_name_suggests_the_present_one():
    assert renamed("forget", ["every", "track_ttl"]) == "; it is now 'track_ttl'"
    assert renamed("forget", ["every", "decay"]) == "; it is now 'decay'"
    assert renamed("forget", ["every"]) == ""
    assert renamed("every", ["every"]) == ""
