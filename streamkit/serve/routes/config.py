# SPDX-License-Identifier: Apache-2.0
"""The pipeline's YAML: reading, checking and saving it, and the areas and lines of its stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from streamkit.config.schema import json_schema
from streamkit.config.shape_options import SOURCES, StageShapes
from streamkit.config.yaml_edit import REMOVED, digest
from streamkit.core.errors import Problem
from streamkit.core.masking import mask
from streamkit.runtime.control.graph_changes import LiveChanges
from streamkit.serve import api_models
from streamkit.serve.api_models import RequestRejected
from streamkit.serve.engine import ServeEngine
from streamkit.serve.pipeline_file import CheckedText, PipelineFile
from streamkit.serve.routes.common import ADMIN, LOCKED_ERRORS, OPERATOR, StageId, errors, reply
from streamkit.serve.yaml_differences import edits

_CONFIG: dict[str, Any] = {"tags": ["config"], "dependencies": ADMIN}


def add_config(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read and edit the YAML."""
    edit_errors = errors(*LOCKED_ERRORS, 409, 422)

    @api.get("/config", response_model=api_models.ConfigView, responses=errors(401, 409, 429), **_CONFIG)
    def read() -> Response:
        """The pipeline's YAML as it is on the disk, with its secrets, and whether the pipeline runs with it."""
        file = _file(engine)
        text = file.read()
        applied = _is_applied(engine, text)
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
        return reply(_edit(engine, made, saved=False))

    @api.put("/config", response_model=api_models.EditView, responses=edit_errors, **_CONFIG)
    def save(given: api_models.ConfigEdit) -> Response:
        """Save a new text of the YAML; the pipeline follows it within seconds.

        An invalid text is refused with all problems. 409 if the file has changed since the text with `hash` was read.
        """
        file = _file(engine)
        made = file.checked(given.text)
        file.write(made, given.hash)
        return reply(_edit(engine, made, saved=True))


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
        return reply(_edit(engine, made, saved=not given.dry_run))


def add_differences(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes about what calls have changed in the running pipeline against its YAML."""
    shared: dict[str, Any] = {"tags": ["config"], "dependencies": OPERATOR}

    def view() -> Response:
        hash_ = "" if engine.file is None else digest(engine.file.read())
        kept = engine.graph.config.state is not None
        return reply(api_models.DifferencesView(engine.differences(), kept, hash_))

    @api.get(
        "/config/differences", response_model=api_models.DifferencesView,
        responses=errors(*LOCKED_ERRORS, 409), **shared,
    )  # fmt: skip
    def differences() -> Response:
        """How calls have changed the sources and settings of the running pipeline against its YAML."""
        return view()

    @api.post(
        "/config/differences/restore", response_model=api_models.DifferencesView,
        responses=errors(*LOCKED_ERRORS, 409), **shared,
    )  # fmt: skip
    def restore() -> Response:
        """Let the running pipeline be as its YAML says; sources without a difference are not interrupted."""
        engine.take_back()
        return view()

    @api.post("/config/differences/write", response_model=api_models.EditView,
              responses=errors(*LOCKED_ERRORS, 409, 422), **_CONFIG)  # fmt: skip
    def write(given: api_models.DifferencesEdit) -> Response:
        """Write what calls have changed to the YAML, and show its changes; with `dry_run`, nothing is saved.

        A paused source, and one that the YAML does not name itself, such as a file of a folder, stays a difference; a
        warning names it. 409 if the file has changed since its text with `hash` was read.
        """
        file = _file(engine)
        text = file.read()
        if digest(text) != given.hash:
            raise RequestRejected(
                409, f"{file.path.name} has changed since it was read: read it again, and repeat the edit"
            )
        if not _is_applied(engine, text):
            raise RequestRejected(409, f"the pipeline does not run with {file.path.name} as it is now: mend that first")
        changes = engine.live_changes()
        made = file.checked(file.with_values(text, edits(text, changes)))
        if not given.dry_run:
            file.write(made, given.hash)
        return reply(_edit(engine, made, saved=not given.dry_run, warnings=_left_out(engine, made, changes)))


def _is_applied(engine: ServeEngine, text: str) -> bool:
    return text.splitlines() == str(getattr(engine.running, "text", "")).splitlines()


def _left_out(engine: ServeEngine, made: CheckedText, changes: LiveChanges) -> Iterator[Problem]:
    """A warning for each difference that the YAML still does not have."""
    if made.graph is not None:
        for one in LiveChanges.of(made.graph, engine.graph, changes.paused).differences():
            yield Problem("", 0, 0, f"{one.text}: this cannot be written to the YAML")


def _file(engine: ServeEngine) -> PipelineFile:
    if engine.file is None:
        raise RequestRejected(409, "this pipeline was not started from a YAML file that can be edited")
    return engine.file


def _problems(problems: list[Problem], *, warning: bool) -> list[api_models.ProblemView]:
    return [api_models.ProblemView(one.line, one.column, mask(one.text), warning) for one in problems]


def _edit(
    engine: ServeEngine, made: CheckedText, *, saved: bool, warnings: Iterable[Problem] = ()
) -> api_models.EditView:  # fmt: skip
    problems = [*_problems(made.problems, warning=False), *_problems([*made.warnings, *warnings], warning=True)]
    hash_ = digest(made.text if saved else made.before)
    return api_models.EditView(problems, made.diff, hash_, saved, engine.rebuild_reasons(made.graph))


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
