"""Values that replace a YAML's, from the command line: `--set stages.detect.min_score=0.5`."""

from __future__ import annotations

from streamkit.core.errors import Problem
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import YamlNode, load, scalar


def replace_value(root: YamlNode, name: str, text: str, problems: list[Problem]) -> None:
    """Apply one `--set NAME=VALUE` to the tree; problems are added to `problems`."""
    node, (*path, last) = root, name.split(".")
    for depth, step in enumerate([*path, last]):
        if depth == 2 and path[0] == "sources" and isinstance(node.value, str):
            node.value = {"uri": YamlNode(node.value, node.file, node.line, node.column)}
        if depth == len(path):
            break
        if depth > 1 and isinstance(node.value, dict) and node.value.get(step) is None:
            node.value[step] = YamlNode({}, f"--set {name}", 0, 0)  # an option such as run, which is checked below
            node.keys[step] = (0, 0)
        if isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
            if node.value is None:
                node.value = {}
        elif node is root and step == "batch" and isinstance(root.value, dict):
            root.value[step] = node = YamlNode({}, f"--set {name}", 0, 0)
        else:
            known = node.value if isinstance(node.value, dict) else {}
            problems.append(Problem("--set", 0, 0, f"{name}: there is no {step!r}{did_you_mean(step, known)}"))
            return
    if not isinstance(node.value, dict):
        where = ".".join(path) or "the file"
        problems.append(Problem("--set", 0, 0, f"{name}: {where} is not a mapping, so {last} cannot be set in it"))
        return
    value, more = (
        load(text, f"--set {name}") if text[:1] in "[{" else (YamlNode(scalar(text), f"--set {name}", 0, 0), [])
    )
    problems.extend(more)
    value.line = value.column = 0
    node.value[last], node.keys[last] = value, (0, 0)
