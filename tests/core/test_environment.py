"""Variables of the environment, and files in their place."""

import pytest

from streamkit.core.environment import variable


def test_a_variable_overrides_its_file(tmp_path):
    (tmp_path / "secret").write_text("in the file")
    environment = {"TOKEN": "given", "TOKEN_FILE": str(tmp_path / "secret")}
    assert variable("TOKEN", environment) == "given"
    assert variable("TOKEN", environment | {"TOKEN": ""}) == ""


@pytest.mark.parametrize("text", ["geheim", "geheim\n", "geheim\r\n"])
def test_a_file_value_is_read_without_its_line_break(tmp_path, text):
    (tmp_path / "secret").write_bytes(text.encode())
    assert variable("TOKEN", {"TOKEN_FILE": str(tmp_path / "secret")}) == "geheim"


def test_blanks_and_other_lines_of_a_file_are_kept(tmp_path):
    (tmp_path / "secret").write_text(" a b \nc")
    assert variable("TOKEN", {"TOKEN_FILE": str(tmp_path / "secret")}) == " a b \nc"


def test_an_unset_variable_is_none():
    assert variable("TOKEN", {}) is None
    assert variable("TOKEN", {"TOKEN_FILE": ""}) is None
    assert variable("NO_SUCH_VARIABLE_OF_THE_TESTS") is None


def test_an_unreadable_file_is_reported(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*gone, which the environment variable TOKEN_FILE names: No"):
        variable("TOKEN", {"TOKEN_FILE": str(tmp_path / "gone")})
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="TOKEN_FILE names: it is not UTF-8 text"):
        variable("TOKEN", {"TOKEN_FILE": str(tmp_path / "binary")})
