# SPDX-License-Identifier: Apache-2.0
"""Checks what a pipeline needs: the packages of its stages, and the servers that `ask` stages ask."""

from __future__ import annotations

from collections.abc import Iterator

from streamkit.config.checks.stages import check_packages
from streamkit.config.plan import Graph
from streamkit.core.errors import ConfigError
from streamkit.core.text import did_you_mean
from streamkit.doctor.machine import Finding
from streamkit.stages.inference.ask.endpoint import CallError
from streamkit.stages.inference.ask.stage import Ask

_TIMEOUT_S = 5.0


def stage_packages(graph: Graph) -> Iterator[Finding]:
    """Report each stage whose packages are missing."""
    try:
        check_packages(graph)
    except ConfigError as error:
        for problem in error.problems:
            text, _, command = problem.text.partition("; install it with: ")
            stage, _, reason = text.partition(": ")
            yield Finding("fail", stage, reason, command)
    else:
        yield Finding("ok", "pipeline", "the packages of its stages are installed")


def endpoints(graph: Graph) -> Iterator[Finding]:
    """Ask each endpoint of a pipeline for its models; no image is sent."""
    for node in graph.nodes.values():
        if issubclass(node.type, Ask):
            stage = node.type(**{**node.options, "timeout": min(_TIMEOUT_S, node.options.get("timeout", _TIMEOUT_S))})
            yield _endpoint(node.id, stage)


def _endpoint(id_: str, stage: Ask) -> Finding:
    client = stage.make_endpoint()
    try:
        names = client.models()
    except CallError as error:
        fix = (
            "set key_env to the variable with its key"
            if error.cause in ("HTTP 401", "HTTP 403")
            else ("start it, or correct url; some servers have no list of models")
        )
        return Finding("warn", id_, f"{client.where}/models: {error}", fix)
    finally:
        client.close()
    if stage.model in names:
        return Finding("ok", id_, f"{client.where} has the model {stage.model}")
    near = did_you_mean(stage.model, names, all_if_few=True) if len(names) < 20 else ""
    return Finding("warn", id_, f"{client.where} has no model {stage.model!r}{near}", "correct model, or load it there")
