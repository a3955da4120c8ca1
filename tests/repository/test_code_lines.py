from repository.code_lines import code_lines

TEXT = '''"""Docs

of a module."""

import os  # why
# a comment


def f(
    a,
):
    """Docs."""
    return """a
b"""
'''


def test_only_code_is_counted():
    assert code_lines(TEXT) == 6
