"""Counts the lines of code of a package, without blank lines, comments and docstrings.

usage: python tests/repository/code_lines.py [FOLDER] [--by-package]
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """The number of lines of a Python file that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():  # a string that is a statement is a docstring
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                lines.difference_update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    return len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "streamkit")
    parser.add_argument("--by-package", action="store_true")
    args = parser.parse_args()
    counts: Counter[str] = Counter()
    for path in sorted(args.folder.rglob("*.py")):
        counts[path.relative_to(args.folder).parts[0]] += code_lines(path.read_text(encoding="utf-8"))
    for name, count in counts.most_common() if args.by_package else ():
        print(f"{count:6}  {name}")
    print(f"{sum(counts.values()):6}  in all")


if __name__ == "__main__":
    main()
