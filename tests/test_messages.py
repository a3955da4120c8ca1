import pytest

from streamkit.messages import did_you_mean, printable


@pytest.mark.parametrize(
    ("word", "known", "all_if_few", "text"),
    [
        ("min_scor", ["min_score", "iou"], False, "; did you mean 'min_score'?"),
        ("zebra", ["min_score", "iou"], False, ""),
        ("zebra", ["min_score", "iou"], True, "; known: min_score, iou"),
        ("x", [], True, ""),
    ],
)
def test_did_you_mean(word, known, all_if_few, text):
    assert did_you_mean(word, known, all_if_few) == text


OBEYED = [
    *range(0x20), 0x7F, *range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A),
    0xD800, 0xDBFF, 0xDC00, 0xDFFF,
]  # fmt: skip
SHOWN = [0x20, 0x7E, 0xA0, 0xE9, 0x61B, 0x61D, 0x200D, 0x2010, 0x2027, 0x202F, 0x2065, 0x206A, 0xD7FF, 0xE000, 0x1F600]


@pytest.mark.parametrize("code", OBEYED)
def test_what_a_terminal_would_obey_becomes_an_escape(code):
    found = printable(f"a{chr(code)}b", one_line=True)
    assert found == f"a{chr(code).encode('unicode_escape').decode()}b"
    assert found.isascii()
    assert found.isprintable()


@pytest.mark.parametrize("code", SHOWN)
def test_what_it_shows_stays(code):
    text = f"a{chr(code)}b"
    assert printable(text) == printable(text, one_line=True) == text


def test_lines_and_tabs_stay_where_a_text_may_have_several():
    assert printable("a\n\tb\r\n") == "a\n\tb\\r\n"
