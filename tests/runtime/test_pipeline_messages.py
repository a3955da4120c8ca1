"""Messages are said once."""

from streamkit.runtime import pipeline as messages
from streamkit.runtime.pipeline import Messages


def test_each_text_once_and_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(messages, "_REMEMBERED", 3)
    said: list[str] = []
    say = Messages(said.append)
    for text in ("a", "b", "a", "c", "a"):
        say(text)
    assert said == ["a", "b", "c"]
    say("d")  # the oldest is forgotten
    for text in ("b", "c", "d", "a"):
        say(text)
    assert said == ["a", "b", "c", "d", "a"]


def test_a_text_from_outside_neither_acts_on_a_terminal_nor_looks_like_a_message_of_its_own():
    said: list[str] = []
    Messages(said.append)("source a\x1b[2J failed\nsource b failed\u202e\r\x9b1m")
    assert said == ["source a\\x1b[2J failed\n    source b failed\\u202e\\r\\x9b1m"]
