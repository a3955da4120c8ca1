# SPDX-License-Identifier: Apache-2.0
"""The pipeline's YAML: reading, checking and saving it, and the areas and lines of its stages."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from streamkit.config.schema import json_schema
from streamkit.config.shape_options import SOURCES, StageShapes
from streamkit.config.yaml_edit import REMOVED, digest
from streamkit.core.errors import Problem
from streamkit.core.masking import mask
from streamkit.serve import api_models
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.pipeline_file import CheckedText, PipelineFile
from streamkit.serve.routes.common import ADMIN, LOCKED_ERRORS, StageId, errors, reply

_CONFIG: dict[str, Any] = {"tags": ["config"], "dependencies": ADMIN}


def add_config(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read and edit the YAML."""
    edit_errors = errors(*LOCKED_ERRORS, 409, 422)

    @api.get("/config", response_model=api_models.ConfigView, responses=errors(401, 409, 429), **_CONFIG)
    def read() -> Response:
        """The pipeline's YAML as it is on the disk, with its secrets, and whether the pipeline runs with it."""
        file = _file(engine)
        text = file.read()
        applied = text.splitlines() == getattr(engine.running, "text", "").splitlines()
        rejected = "" if applied else mask(getattr(engine.running, "rejected", ""))
        return reply(api_models.ConfigView(file.path.name, text, digest(text), applied, rejected, file.read_only))

    @api.get("/config/schema", response_model=dict[str, Any], responses=errors(401, 429), **_CONFIG)
    def schema() -> Response:
        """The JSON Schema of a pipeline's YAML, with the stages of its plugins, as `streamkit schema` prints it."""
        return reply(json_schema(engine.graph.config.registry))

    @api.post("/config/check", response_model=api_models.EditView, responses=edit_errors, **_CONFIG)
    def check(given: api_models.ConfigText) -> Response:
        """Check a text in place of the YAML, as `streamkit check` does, and show its changes; nothing is saved."""
        made = _file(engine).checked(given.text)
        return reply(_edit(made, saved=False))

    @api.put("/config", response_model=api_models.EditView, responses=edit_errors, **_CONFIG)
    def save(given: api_models.ConfigEdit) -> Response:
        """Save a new text of the YAML; the pipeline follows it within seconds.

        An invalid text is refused with all problems. 409 if the file has changed since the text with `hash` was read.
        """
        file = _file(engine)
        made = file.checked(given.text)
        file.write(made, given.hash)
        return reply(_edit(made, saved=True))


def add_shapes(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read and edit the areas and lines in the YAML."""

    @api.get("/shapes", response_model=api_models.ShapesView, responses=errors(401, 409, 429), **_CONFIG)
    def shapes() -> Response:
        """The areas, lines and arrows of the stages, as they are in the YAML on the disk."""
        text, found = _file(engine).shapes(engine.graph.config.registry)
        states = list(engine.running.states.items())
        sizes = {id_: size for id_, state in states if (size := state.shape_size or state.size) is not None}
        return reply(api_models.ShapesView(digest(text), sizes, [_shown(one) for one in found]))

    @api.post(
        "/stages/{id}/shapes",
        response_model=api_models.EditView,
        responses=errors(*LOCKED_ERRORS, 404, 409, 422),
        **_CONFIG,
    )
    def edit(id: StageId, given: api_models.ShapesEdit) -> Response:  # noqa: A002
        """Check an edit of the shapes of a stage, and show its changes to the YAML; without `dry_run`, save it."""
        file = _file(engine)
        text, found = file.shapes(engine.graph.config.registry)
        option = next((one for one in found if (one.stage, _name(one)) == (id, given.option)), None)
        if option is None:
            known = ", ".join(f"{one.stage}.{_name(one)}" for one in found) or "none"
            raise RequestRejected(404, f"{id} has no option {given.option} with areas or lines; these have: {known}")
        if digest(text) != given.hash:
            raise RequestRejected(
                409, f"{file.path.name} has changed since it was read: read it again, and repeat the edit"
            )
        made = file.checked(file.with_values(text, list(_values(option, given))))
        if not given.dry_run:
            file.write(made, given.hash)
        return reply(_edit(made, saved=not given.dry_run))


def _file(engine: ServeEngine) -> PipelineFile:
    if engine.file is None:
        raise RequestRejected(409, "this pipeline was not started from a YAML file that can be edited")
    return engine.file


def _problems(problems: list[Problem], *, warning: bool) -> list[api_models.ProblemView]:
    return [api_models.ProblemView(one.line, one.column, mask(one.text), warning) for one in problems]


def _edit(made: CheckedText, *, saved: bool) -> api_models.EditView:
    problems = [*_problems(made.problems, warning=False), *_problems(made.warnings, warning=True)]
    return api_models.EditView(problems, made.diff, digest(made.text if saved else made.before), saved)


def _name(shapes: StageShapes) -> str:
    return ".".join(shapes.option.path)


def _shown(one: StageShapes) -> api_models.ShapeOptionView:
    option = one.option
    return api_models.ShapeOptionView(
        one.stage, one.type, _name(one), option.kind, option.single, option.named, option.hides, option.help,
        one.units, one.shapes, option.by_source, dict(one.sources), one.fixed,
    )  # fmt: skip


def _values(found: StageShapes, given: api_models.ShapesEdit) -> list[tuple[tuple[str, ...], Any]]:
    """The values to set in the YAML. Raises RequestRejected."""
    option, at = found.option, ("stages", found.stage)
    if found.fixed:
        raise RequestRejected(409, found.fixed)
    shapes = {name: [list(point) for point in points] for name, points in given.shapes.items()}
    if not shapes:
        outer = option.path[:-1] if option.hides else option.path
        return [((*at, *outer), REMOVED)]
    if "" in shapes and (len(shapes) > 1 or not option.single):
        raise RequestRejected(422, f"{_name(found)}: give each shape a name; only a single one may have none")
    if "" not in shapes and not option.named:
        raise RequestRejected(422, f"{_name(found)} takes one shape, which has no name")
    values: list[tuple[tuple[str, ...], Any]] = [((*at, *option.path), shapes.get("", shapes))]
    if given.units is not None and not (found.shapes and given.units == found.units):
        values.append(((*at, *option.units), given.units))
    kept = found.sources if given.sources is None else given.sources
    sources = {name: ids for name, ids in kept.items() if name in shapes}
    if given.sources and not option.by_source:
        raise RequestRejected(422, f"{_name(found)} is for all sources; leave sources out")
    if sources != found.sources:
        values.append(((*at, SOURCES), sources.get("", sources) if sources else REMOVED))
    return values
