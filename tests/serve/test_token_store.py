"""Tokens of people: those of a file, and those of the page."""

import hashlib
from pathlib import Path

import pytest
from support.full_disk import small_disk

from streamkit.core.errors import ConfigError, OutputError
from streamkit.io.private_file import write_private
from streamkit.serve.token_store import TokenStore, read_tokens

TEXT = "a token of the tests"
HASH = "sha256:" + hashlib.sha256(TEXT.encode()).hexdigest()


@pytest.fixture
def file(tmp_path):
    def write(text, mode=0o600):
        path = tmp_path / "tokens.yaml"
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


def test_tokens_are_read_from_a_file(file):
    first, second = read_tokens(
        file(f"- {{name: anna, role: viewer, token: {TEXT}}}\n- name: ben k.\n  role: operator\n  hash: {HASH}\n")
    )
    assert (first.name, first.role, first.origin) == ("anna", "viewer", "file")
    assert (second.name, second.role) == ("ben k.", "operator")
    assert first.matches(TEXT)
    assert second.matches(TEXT)
    assert not first.matches(TEXT + "x")
    assert not second.matches(HASH)
    assert not second.matches(HASH.removeprefix("sha256:"))
    assert TEXT not in repr([first, second])


def test_a_token_may_come_from_the_environment(file, monkeypatch):
    monkeypatch.setenv("ANNAS_TOKEN", TEXT)
    (token,) = read_tokens(file("- {name: anna, role: admin, token: '${ANNAS_TOKEN}'}"))
    assert token.matches(TEXT)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
@pytest.mark.parametrize("token", [TEXT, f"'{TEXT}'", "${ANNAS_TOKEN:-a default token}", "x${ANNAS_TOKEN}"])
def test_a_token_file_readable_by_others_is_refused(file, mode, token, monkeypatch):
    monkeypatch.setenv("ANNAS_TOKEN", TEXT)
    text = f"- {{name: ben, role: viewer, hash: {HASH}}}\n- name: anna\n  role: viewer\n  token: {token}"
    with pytest.raises(ConfigError, match=f"mode {mode:o}.*chmod 600"):
        read_tokens(file(text, mode))


@pytest.mark.parametrize("secret", [f"hash: {HASH}", "token: ${ANNAS_TOKEN}", "token: '${ANNAS_TOKEN}'"])
def test_a_file_without_secrets_may_be_readable_but_not_writable_by_others(file, secret, monkeypatch):
    monkeypatch.setenv("ANNAS_TOKEN", TEXT)
    (token,) = read_tokens(file(f"- name: anna\n  role: viewer\n  {secret}", 0o644))
    assert token.matches(TEXT)
    for mode in (0o620, 0o602, 0o666):
        with pytest.raises(ConfigError, match=f"other users may write it .mode {mode:o}.; run: chmod 600"):
            read_tokens(file(f"- name: anna\n  role: viewer\n  {secret}", mode))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1", "a list of tokens"),
        ("- 3", "each token is a mapping"),
        (f"- {{role: viewer, token: {TEXT}}}", "a name has 1 to 64"),
        (f"- {{name: ' x', role: viewer, token: {TEXT}}}", "a name has 1 to 64"),
        (f"- {{name: a, role: boss, token: {TEXT}}}", "viewer, operator or admin, got 'boss'"),
        (f"- {{name: a, role: viewer, token: {TEXT}, hash: {HASH}}}", "either `token`"),
        ("- {name: a, role: viewer}", "either `token`"),
        ("- {name: a, role: viewer, token: geheim}", "at least 16"),
        ("- {name: a, role: viewer, hash: md5:12}", "sha256"),
        (f"- {{name: a, role: viewer, token: {TEXT}, age: 3}}", "not 'age'"),
        (f"- &a {{name: a, role: viewer, token: {TEXT}}}\n- *a", "used twice"),
    ],
)
def test_errors_of_a_file_have_a_position_and_no_token(file, text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read_tokens(file(text))
    assert "tokens.yaml:" in str(caught.value)
    assert TEXT not in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_a_missing_file_is_reported():
    with pytest.raises(ConfigError, match=r"--tokens nowhere.yaml: No such file"):
        read_tokens(Path("nowhere.yaml"))


def test_a_created_token_is_stored_as_a_hash(tmp_path):
    path = tmp_path / "data" / "tokens.json"
    store = TokenStore(path)
    assert store.all() == []
    assert not path.exists()
    text = store.create("anna", "viewer", "root")
    assert len(text) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    stored = path.read_text()
    assert text not in stored
    assert hashlib.sha256(text.encode()).hexdigest() not in stored  # an HMAC with a key of this file
    (token,) = TokenStore(path).all()
    assert (token.name, token.role, token.created_by, token.origin) == ("anna", "viewer", "root", "page")
    assert token.matches(text)
    assert not token.matches(text + "x")
    assert list(path.parent.iterdir()) == [path]


def test_changes_of_another_process_apply_at_once(tmp_path):
    store_a = TokenStore(tmp_path / "t.json")
    store_b = TokenStore(tmp_path / "t.json")
    anna = store_a.create("anna", "viewer", "")
    ben = store_b.create("ben", "admin", "")
    assert [[t.name for t in store.all()] for store in (store_a, store_b)] == [["anna", "ben"]] * 2
    assert [t.matches(text) for t, text in zip(store_a.all(), (anna, ben), strict=True)] == [True, True]
    store_a.remove("anna")
    assert [t.name for t in store_b.all()] == ["ben"]
    (tmp_path / "t.json").unlink()
    assert store_b.all() == []


def test_a_recreated_token_is_a_new_token(tmp_path):
    store = TokenStore(tmp_path / "t.json")
    before = store.create("anna", "viewer", "")
    (old,) = store.all()
    store.remove("anna")
    after = store.create("anna", "viewer", "")
    (new,) = store.all()
    assert old.key != new.key
    assert not new.matches(before)
    assert new.matches(after)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"key": "x", "tokens": []}', '{"key": "00", "tokens": [{"age": 3}]}'])
def test_a_damaged_file_is_reported(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(OutputError, match=r"t\.json is damaged; repair it, or remove it"):
        TokenStore(tmp_path / "t.json")


def test_an_unwritable_folder_is_reported(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(OutputError, match="--data"):
        TokenStore(tmp_path / "data" / "t.json")


def test_a_token_that_cannot_be_stored_is_not_created(tmp_path):
    with small_disk(tmp_path / "disk") as disk:
        store = TokenStore(disk.folder / "tokens.json")
        store.create("anna", "viewer", "admin")
        names = sorted(path.name for path in disk.folder.iterdir())
        disk.fill()
        with pytest.raises(OutputError, match=r"cannot use the tokens .*tokens\.json: No space left on device"):
            store.create("ben", "viewer", "admin")
        with pytest.raises(OutputError):
            store.remove("anna")
        assert [token.name for token in store.all()] == ["anna"]
        disk.free()
        assert sorted(path.name for path in disk.folder.iterdir()) == names == ["tokens.json"]
        store.remove("anna")
        assert store.all() == []


def test_a_failed_replacement_leaves_no_temporary_file(tmp_path):
    (tmp_path / "tokens.json").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        write_private(tmp_path / "tokens.json", "secret")
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.json"]
