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
    def check(text: api_models.ConfigText) -> Response:
        """Check a text in place of the YAML, as `streamkit check` does, and show its changes; nothing is saved."""
        checked = _file(engine).checked(text.text)
        return reply(_edit(engine, checked, saved=False))

    @api.put("/config", response_model=api_models.EditView, responses=edit_errors, **_CONFIG)
    def save(edit: api_models.ConfigEdit) -> Response:
        """Save a new text of the YAML; the pipeline follows it within seconds.

        An invalid text is refused with all problems. 409 if the file has changed since the text with `hash` was read.
        """
        file = _file(engine)
        checked = file.checked(edit.text)
        file.write(checked, edit.hash)
        return reply(_edit(engine, checked, saved=True))


def add_shapes(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes that read and edit the areas and lines in the YAML."""

    @api.get("/shapes", response_model=api_models.ShapesView, responses=errors(401, 409, 429), **_CONFIG)
    def shapes() -> Response:
        """The areas, lines and arrows of the stages, as they are in the YAML on the disk."""
        text, shapes_by_option = _file(engine).shapes(engine.graph.config.registry)
        states = list(engine.running.states.items())
        sizes = {id_: size for id_, state in states if (size := state.shape_size or state.size) is not None}
        return reply(
            api_models.ShapesView(digest(text), sizes, [_shown(option_shapes) for option_shapes in shapes_by_option])
        )

    @api.post(
        "/stages/{id}/shapes",
        response_model=api_models.EditView,
        responses=errors(*LOCKED_ERRORS, 404, 409, 422),
        **_CONFIG,
    )
    def edit(id: StageId, shapes_edit: api_models.ShapesEdit) -> Response:  # noqa: A002
        """Check an edit of the shapes of a stage, and show its changes to the YAML; without `dry_run`, save it."""
        file = _file(engine)
        text, shapes_by_option = file.shapes(engine.graph.config.registry)
        option = next(
            (
                option_shapes
                for option_shapes in shapes_by_option
                if (option_shapes.stage, _name(option_shapes)) == (id, shapes_edit.option)
            ),
            None,
        )
        if option is None:
            options_with_shapes = (
                ", ".join(f"{option_shapes.stage}.{_name(option_shapes)}" for option_shapes in shapes_by_option)
                or "none"
            )
            raise RequestRejected(
                404, f"{id} has no option {shapes_edit.option} with areas or lines; these have: {options_with_shapes}"
            )
        if digest(text) != shapes_edit.hash:
            raise RequestRejected(
                409, f"{file.path.name} has changed since it was read: read it again, and repeat the edit"
            )
        checked = file.checked(file.with_values(text, list(_values(option, shapes_edit))))
        if not shapes_edit.dry_run:
            file.write(checked, shapes_edit.hash)
        return reply(_edit(engine, checked, saved=not shapes_edit.dry_run))


def add_differences(api: APIRouter, engine: ServeEngine) -> None:
    """Add the routes about what calls have changed in the running pipeline against its YAML."""
    shared: dict[str, Any] = {"tags": ["config"], "dependencies": OPERATOR}

    def view() -> Response:
        hash_ = "" if engine.file is None else digest(engine.file.read())
        survives_restart = engine.graph.config.state is not None
        return reply(api_models.DifferencesView(engine.differences(), survives_restart, hash_))

    @api.get(
        "/config/differences",
        response_model=api_models.DifferencesView,
        responses=errors(*LOCKED_ERRORS, 409),
        **shared,
    )
    def differences() -> Response:
        """How calls have changed the sources and settings of the running pipeline against its YAML."""
        return view()

    @api.post(
        "/config/differences/restore",
        response_model=api_models.DifferencesView,
        responses=errors(*LOCKED_ERRORS, 409),
        **shared,
    )
    def restore() -> Response:
        """Let the running pipeline be as its YAML says; sources without a difference are not interrupted."""
        engine.rights.check_unlimited("restoring the YAML")
        engine.take_back()
        return view()

    @api.post(
        "/config/differences/write",
        response_model=api_models.EditView,
        responses=errors(*LOCKED_ERRORS, 409, 422),
        **_CONFIG,
    )
    def write(differences_edit: api_models.DifferencesEdit) -> Response:
        """Write what calls have changed to the YAML, and show its changes; with `dry_run`, nothing is saved.

        A paused source, and one that the YAML does not name itself, such as a file of a folder, stays a difference; a
        warning names it. 409 if the file has changed since its text with `hash` was read.
        """
        file = _file(engine)
        text = file.read()
        if digest(text) != differences_edit.hash:
            raise RequestRejected(
                409, f"{file.path.name} has changed since it was read: read it again, and repeat the edit"
            )
        if not _is_applied(engine, text):
            raise RequestRejected(409, f"the pipeline does not run with {file.path.name} as it is now: mend that first")
        changes = engine.live_changes()
        checked = file.checked(file.with_values(text, edits(text, changes)))
        if not differences_edit.dry_run:
            file.write(checked, differences_edit.hash)
        return reply(
            _edit(engine, checked, saved=not differences_edit.dry_run, warnings=_left_out(engine, checked, changes))
        )


def _is_applied(engine: ServeEngine, text: str) -> bool:
    return text.splitlines() == str(getattr(engine.running, "text", "")).splitlines()


def _left_out(engine: ServeEngine, checked: CheckedText, changes: LiveChanges) -> Iterator[Problem]:
    """A warning for each difference that the YAML still does not have."""
    if checked.graph is not None:
        for difference in LiveChanges.of(checked.graph, engine.graph, changes.paused).differences():
            yield Problem("", 0, 0, f"{difference.text}: this cannot be written to the YAML")


def _file(engine: ServeEngine) -> PipelineFile:
    if engine.file is None:
        raise RequestRejected(409, "this pipeline was not started from a YAML file that can be edited")
    return engine.file


def _problems(problems: list[Problem], *, warning: bool) -> list[api_models.ProblemView]:
    return [api_models.ProblemView(problem.line, problem.column, mask(problem.text), warning) for problem in problems]


def _edit(
    engine: ServeEngine, checked: CheckedText, *, saved: bool, warnings: Iterable[Problem] = ()
) -> api_models.EditView:
    problems = [*_problems(checked.problems, warning=False), *_problems([*checked.warnings, *warnings], warning=True)]
    hash_ = digest(checked.text if saved else checked.before)
    return api_models.EditView(problems, checked.diff, hash_, saved, engine.rebuild_reasons(checked.graph))


def _name(shapes: StageShapes) -> str:
    return ".".join(shapes.option.path)


def _shown(option_shapes: StageShapes) -> api_models.ShapeOptionView:
    option = option_shapes.option
    return api_models.ShapeOptionView(
        option_shapes.stage,
        option_shapes.type,
        _name(option_shapes),
        option.kind,
        option.single,
        option.named,
        option.hides,
        option.help,
        option_shapes.units,
        option_shapes.shapes,
        option.by_source,
        dict(option_shapes.sources),
        option_shapes.fixed,
    )


def _values(option_shapes: StageShapes, edit: api_models.ShapesEdit) -> list[tuple[tuple[str, ...], Any]]:
    """The values to set in the YAML. Raises RequestRejected."""
    option = option_shapes.option
    at = ("stages", option_shapes.stage)
    if option_shapes.fixed:
        raise RequestRejected(409, option_shapes.fixed)
    shapes = {name: [list(point) for point in points] for name, points in edit.shapes.items()}
    if not shapes:
        outer = option.path[:-1] if option.hides else option.path
        return [((*at, *outer), REMOVED)]
    if "" in shapes and (len(shapes) > 1 or not option.single):
        raise RequestRejected(422, f"{_name(option_shapes)}: give each shape a name; only a single one may have none")
    if "" not in shapes and not option.named:
        raise RequestRejected(422, f"{_name(option_shapes)} takes one shape, which has no name")
    values: list[tuple[tuple[str, ...], Any]] = [((*at, *option.path), shapes.get("", shapes))]
    if edit.units is not None and not (option_shapes.shapes and edit.units == option_shapes.units):
        values.append(((*at, *option.units), edit.units))
    sources_by_shape = option_shapes.sources if edit.sources is None else edit.sources
    sources = {name: ids for name, ids in sources_by_shape.items() if name in shapes}
    if edit.sources and not option.by_source:
        raise RequestRejected(422, f"{_name(option_shapes)} is for all sources; leave sources out")
    if sources != option_shapes.sources:
        values.append(((*at, SOURCES), sources.get("", sources) if sources else REMOVED))
    return values
