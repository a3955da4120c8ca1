"""Reads the parts of a Dockerfile and a .dockerignore that the tests need."""

import fnmatch
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath


@dataclass
class BuildStage:
    """A stage: its name, its base, and its instructions as (name, rest)."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def rest_of(self, name: str) -> list[str]:
        return [rest for step, rest in self.steps if step == name]


def read_dockerfile(text: str) -> tuple[dict[str, str], dict[str, BuildStage]]:
    """Return the arguments before the first stage, and the stages by name."""
    arguments: dict[str, str] = {}
    stages: dict[str, BuildStage] = {}
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stage = None
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, called = rest.partition(" AS ")
            base = re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], base)
            stage = stages[called] = BuildStage(called, base)
        elif stage is None:
            key, _, value = rest.partition("=")
            arguments[key] = value.strip('"')
        else:
            stage.steps.append((name, rest.strip()))
    return arguments, stages


def lineage(stages: dict[str, BuildStage], name: str) -> list[BuildStage]:
    """Return the stages that a stage is based on, and the stage."""
    stage = stages[name]
    return [*(lineage(stages, stage.base) if stage.base in stages else ()), stage]


def ignored(path: str, patterns: list[str]) -> bool:
    """Return whether a .dockerignore excludes `path`: its last pattern that matches it or a folder above it decides."""
    places = [PurePosixPath(path), *list(PurePosixPath(path).parents)[:-1]]
    is_ignored = False
    for pattern in patterns:
        if any(_matches(place.parts, tuple(pattern.removeprefix("!").strip("/").split("/"))) for place in places):
            is_ignored = not pattern.startswith("!")
    return is_ignored


def _matches(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_matches(parts[i:], pattern[1:]) for i in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _matches(parts[1:], pattern[1:])
