"""A statement sets one name, and the formatter lays it out."""

import ast
import io
import tokenize
from collections.abc import Iterator

import pytest

FOLDERS = ["streamkit", "plugins", "tests", "benchmarks", "docs", "models", "samples"]
SKIP = "# fmt: " + "skip"
NUMERIC = (bool, int, float)


def names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Return the variables, attributes and entries that `node` sets (ast.Store) or reads (ast.Load)."""
    places = (part for part in ast.walk(node) if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)))
    return {ast.unparse(part) for part in places if isinstance(part.ctx, context)}


def packed_assignments(text: str) -> Iterator[int]:
    """Yield the lines of assignments of several values at once, except those that swap values."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Tuple() as targets], value=ast.Tuple() as values):
                if not names(targets, ast.Store) & names(values, ast.Load):
                    yield node.lineno


def is_numeric_table(statement: str) -> bool:
    """Whether most constants of a statement are numbers, but for the keys of dictionaries."""
    tree = ast.parse(statement)
    keys = {id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in keys]
    numbers = sum(isinstance(constant.value, NUMERIC) for constant in constants)
    return numbers >= 10 and numbers > 0.8 * len(constants)


def unformatted_statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each logical line that the formatter leaves alone."""
    lines = text.splitlines()
    start: int | None = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.string == SKIP and start is not None:
            yield token.start[0], "\n".join(lines[start - 1 : token.start[0]]).strip().removeprefix("@")
        if token.type == tokenize.NEWLINE:
            start = None
        elif start is None and token.type in (tokenize.NAME, tokenize.OP):
            start = token.start[0]


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_assignment_sets_a_single_value(root, folder):
    files = sorted((root / folder).rglob("*.py"))
    packed = [f"{file}:{line}" for file in files for line in packed_assignments(file.read_text(encoding="utf-8"))]
    assert packed == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_numeric_tables_keep_their_layout(root, folder):
    files = sorted((root / folder).rglob("*.py"))
    texts = {file: text for file in files if SKIP in (text := file.read_text(encoding="utf-8"))}
    unformatted = [
        f"{file}:{line}"
        for file, text in texts.items()
        for line, statement in unformatted_statements(text)
        if not is_numeric_table(statement)
    ]
    assert unformatted == []


def test_packed_assignments_are_reported_but_not_swaps():
    text = "a, b = 1, 2\na, b = b, a\nself.x, y = frame.width, 0\nc, d = divmod(7, 2)\ne, f = (1, 2) if a else (3, 4)\n"
    assert list(packed_assignments(text)) == [1, 3]


def test_unformatted_statements_are_reported_with_their_last_line():
    text = f"a = 1\nTABLE = [\n    {', '.join(map(str, range(12)))},\n]  {SKIP}\ncall(\n    'x', 'y',\n)  {SKIP}\n"
    statements = dict(unformatted_statements(text))
    assert list(statements) == [4, 7]
    assert [is_numeric_table(statement) for statement in statements.values()] == [True, False]
