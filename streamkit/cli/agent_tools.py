# SPDX-License-Identifier: Apache-2.0
"""The tools that `streamkit mcp` offers to coding agents, over the functions of the other commands."""

from __future__ import annotations

import csv
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from streamkit.cli.agent_access import (
    YamlText,
    is_within,
    reading_problems,
    refuse,
    secrets_of,
    sending_problems,
    texts,
    without_secrets,
    writing_problems,
)
from streamkit.core.errors import ConfigError, Problem, SourceError, StreamkitError

if TYPE_CHECKING:
    from streamkit.core.stage import Registry

MAX_FRAMES = 10_000
MAX_TIMEOUT_S = 600.0
MAX_RECORDS = 200
_MAX_PAGE_BYTES = 200_000
_MAX_MESSAGES = 40
_GRACE_S = 5.0

Yaml = Annotated[str, "the YAML; its relative paths start from the working folder"]
File = Annotated[str, "instead of yaml: a YAML file in the working folder"]
Timeout = Annotated[float, f"seconds after which the run is stopped, at most {MAX_TIMEOUT_S:g}"]


@dataclass(frozen=True, slots=True)
class AgentPipeline:
    """A pipeline of an agent that reads within the working folder only.

    Attributes:
        text: the YAML.
        path: its file, which need not exist.
        scalars: its texts.
    """

    text: str
    path: Path
    scalars: list[YamlText]


class AgentTools:
    """The tools; each answers with a text, or with plain values.

    Args:
        folder: the working folder: agents read nothing outside of it.
        scratch: a temporary folder for results.
        allow_write: whether runs may write into the working folder, and send to brokers and other machines.
    """

    def __init__(self, folder: Path, scratch: Path, *, allow_write: bool = False) -> None:
        self.folder = folder.resolve()
        self.scratch = scratch.resolve()
        self.allow_write = allow_write
        self._secrets: set[str] = set()
        self._runs: set[subprocess.Popen[str]] = set()

    def kill_runs(self) -> None:
        """Kill the runs in progress."""
        for process in list(self._runs):
            _kill_group(process)

    def without_secrets(self, answer: Any) -> Any:
        """Return an answer with the secrets of every pipeline so far replaced: a result file has those of its run."""
        return without_secrets(answer, sorted(self._secrets, key=len, reverse=True))

    def list_stages(self) -> str:
        """List the stages of a pipeline, one a line: name, kind, what it reads and writes, what it does."""
        from streamkit.config.describe import part_list, stage_list

        stages = self._registry()
        return "\n".join(filter(None, [stage_list(stages), part_list(stages)]))

    def explain_stage(self, stage: Annotated[str, "a stage of list_stages; also device, fault or alarms"]) -> str:
        """Explain a stage: what it does, and each option with its type, default and help."""
        from streamkit.config.describe import explain

        return explain(self._registry(), stage)

    def list_models(self) -> str:
        """List the model cards, one a line: name, task, family, input size, license, whether it is ready."""
        from streamkit.cli.models import card_lines

        return "\n".join(card_lines())

    def check_pipeline(self, yaml: Yaml = "", path: File = "") -> dict[str, Any]:
        """Check a pipeline without running it: every problem with its line, its column and the fix."""
        from streamkit.cli.check import check
        from streamkit.config.pipeline_config import read
        from streamkit.runtime.multiprocess.partition import assign_sources

        warnings: list[Problem] = []
        problems: list[Problem] = []
        try:
            pipeline = self._pipeline(yaml, path)
            config = read(pipeline.path, text=pipeline.text)
            warnings = config.warnings
            check(config, placement=assign_sources, open_files=True)
        except ConfigError as error:
            problems = error.problems
        return {
            "ok": not problems,
            "problems": list(map(_place, problems)),
            "warnings": list(map(_place, sorted(set(warnings)))),
        }

    def run_pipeline(
        self,
        yaml: Yaml = "",
        path: File = "",
        frames: Annotated[int, f"maximum number of frames of each source, at most {MAX_FRAMES}"] = 100,
        timeout_s: Timeout = 60.0,
        output_folder: Annotated[
            str, "where relative paths of outputs start; a temporary folder by default; others need --allow-write"
        ] = "",
    ) -> dict[str, Any]:
        """Run a pipeline for some frames, and report how it ended, its counts, its messages and the files it wrote."""
        if not 1 <= frames <= MAX_FRAMES:
            raise ConfigError(f"frames must be from 1 to {MAX_FRAMES}, got {frames}")
        pipeline = self._pipeline(yaml, path)
        output = self._output(output_folder)
        self._check_outputs(pipeline, output)
        answer, messages, ended = self._job(pipeline, {"limit": frames}, output, timeout_s)
        return {"ended": ended, **_selected(answer, output), "messages": messages}

    def read_records(
        self,
        path: Annotated[str, "a file of run_pipeline's outputs, or one in the working folder: .jsonl or .csv"],
        offset: Annotated[int, "number of the first record, from 0"] = 0,
        limit: Annotated[int, f"maximum number of records, at most {MAX_RECORDS}"] = 20,
    ) -> dict[str, Any]:
        """Read a page of the records of a result file; `next_offset` is null at its end."""
        if offset < 0 or not 1 <= limit <= MAX_RECORDS:
            raise ConfigError(f"offset must be at least 0 and limit from 1 to {MAX_RECORDS}, got {offset} and {limit}")
        file = self._readable(path)
        page: list[Any] = []
        size = 0
        has_more = False
        with _opened(file) as rows:
            for row in itertools.islice(rows, offset, None):
                size += len(json.dumps(row))
                has_more = len(page) == limit or (bool(page) and size > _MAX_PAGE_BYTES)
                if has_more:
                    break
                page.append(row)
        return {"records": page, "next_offset": offset + len(page) if has_more else None}

    def draw_frame(
        self,
        yaml: Yaml = "",
        path: File = "",
        source: Annotated[str, "the id of the source; the first by default"] = "",
        frame: Annotated[int, f"the number of the frame, from 0, below {MAX_FRAMES}"] = 0,
        timeout_s: Timeout = 60.0,
    ) -> bytes:
        """Draw a frame of a pipeline with its objects, lines and zones, as a PNG."""
        if not 0 <= frame < MAX_FRAMES:
            raise ConfigError(f"frame must be from 0 to {MAX_FRAMES - 1}, got {frame}")
        pipeline = self._pipeline(yaml, path)
        output = self._output("")
        self._check_outputs(pipeline, output)
        image = output / "frame.png"
        job = {"source": source, "frame": frame, "image": str(image)}
        _, messages, ended = self._job(pipeline, job, output, timeout_s)
        if ended != "complete" or not image.is_file():
            raise StreamkitError("\n".join(messages) or f"the frame was not drawn: {ended}")
        return image.read_bytes()

    def _registry(self) -> Registry:
        """The stages that ship, and those of the folder `plugins` in the working folder."""
        from streamkit.cli.common import registry
        from streamkit.core.stage import default_registry

        plugins = self.folder / "plugins"
        return registry((plugins,)) if plugins.is_dir() else default_registry()

    def _pipeline(self, yaml: str, path: str) -> AgentPipeline:
        """The pipeline of a tool's arguments. Raises ConfigError, also if it reads outside of the working folder."""
        from streamkit.core.yaml_tree import load, read_file

        if bool(yaml) == bool(path):
            raise ConfigError("give the pipeline either as yaml or as path")
        file = self._readable(path) if path else self.folder / "pipeline.yaml"
        text = read_file(file) if path else yaml
        root, _ = load(text, str(file))
        scalars = list(texts(root))
        self._secrets |= secrets_of(text, scalars)
        refuse(reading_problems(scalars, file.parent, self._readable_folders()))
        return AgentPipeline(text, file, scalars)

    def _readable_folders(self) -> list[Path]:
        """The folders that agents may read: also those of the shipped models and videos."""
        from streamkit.models.card import sample_video, shipped_models

        shipped = [shipped_models().resolve(), sample_video().resolve().parent]
        return [self.folder, self.scratch, *shipped]

    def _readable(self, path: str) -> Path:
        """A file that an agent may read. Raises ConfigError."""
        file = self.folder / path
        if not is_within(file, [self.folder, self.scratch]):
            raise ConfigError(f"{path} is not in the working folder {self.folder}")
        if not file.is_file():
            raise ConfigError(f"there is no file {path} in the working folder {self.folder}")
        return file

    def _output(self, name: str) -> Path:
        """The folder of a run's outputs: a new temporary one, or the one with this name. Raises ConfigError."""
        if not name:
            return Path(tempfile.mkdtemp(prefix="run-", dir=self.scratch))
        if not self.allow_write:
            raise ConfigError("output_folder needs a server with --allow-write; without it, outputs are temporary")
        output = self.folder / name
        if not is_within(output, [self.folder]):
            raise ConfigError(f"{name} is not in the working folder {self.folder}")
        output.mkdir(parents=True, exist_ok=True)
        return output

    def _check_outputs(self, pipeline: AgentPipeline, output: Path) -> None:
        """Raise ConfigError if a pipeline is invalid, or writes where it must not."""
        from streamkit.config.graph import build
        from streamkit.config.pipeline_config import read

        folders = [self.scratch, *([self.folder] if self.allow_write else [])]
        graph = build(read(pipeline.path, text=pipeline.text))
        sending = [] if self.allow_write else sending_problems(graph, pipeline.scalars)
        refuse(sending + writing_problems(pipeline.scalars, output, folders))

    def _job(
        self, pipeline: AgentPipeline, job: Mapping[str, Any], output: Path, timeout_s: float
    ) -> tuple[dict[str, Any], list[str], str]:
        """Do a job in a process of its own; return its answer, its messages and what it printed, and how it ended."""
        if not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise ConfigError(f"timeout_s must be above 0 and at most {MAX_TIMEOUT_S:g}, got {timeout_s:g}")
        answer = Path(tempfile.mkdtemp(prefix="answer-", dir=self.scratch), "answer.json")
        request = json.dumps({"text": pipeline.text, "path": str(pipeline.path), "answer": str(answer), **job})
        process = subprocess.Popen(
            [sys.executable, "-m", "streamkit.cli.agent_job"],
            cwd=output,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._runs.add(process)
        ended = ""
        try:
            out, err = process.communicate(request, timeout_s)
        except subprocess.TimeoutExpired:
            ended = f"stopped after timeout_s, {timeout_s:g} s"
            out, err = _stop(process)
        finally:
            _kill_group(process)
            self._runs.discard(process)
        ended = ended or ("complete" if process.returncode == 0 else f"failed with exit code {process.returncode}")
        report = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else {}
        return report, [*err.splitlines()[-_MAX_MESSAGES:], *out.splitlines()[:_MAX_MESSAGES]], ended


def _stop(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Let a job close its files; kill it if that takes too long. Return its output."""
    process.send_signal(signal.SIGTERM)
    try:
        return process.communicate(timeout=_GRACE_S)
    except subprocess.TimeoutExpired:
        _kill_group(process)
        return process.communicate()


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a job, and the processes that it has started, as far as they still run."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _place(problem: Problem) -> dict[str, Any]:
    """A problem as plain values; line and column are null where the place is unknown."""
    return {"line": problem.line or None, "column": problem.column or None, "message": problem.text}


def _selected(report: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """The parts of a run's report that an agent reads; the paths of outputs are absolute."""
    keys = ("exit_code", "frames", "seconds", "detections", "events", "sources")
    selected = {key: report[key] for key in keys if key in report}
    return selected | {"outputs": [str(output / path) for path in report.get("outputs", ())]}


@contextmanager
def _opened(file: Path) -> Iterator[Iterator[Any]]:
    """The records of a result file. Raises ConfigError for other formats, SourceError for a damaged file."""
    suffix = file.suffix.lower()
    if suffix not in (".jsonl", ".csv"):
        raise ConfigError(f"{file.name}: records are read from .jsonl and .csv; add the stage jsonl or csv")
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            yield map(json.loads, stream) if suffix == ".jsonl" else csv.DictReader(stream)
    except (ValueError, csv.Error) as error:
        raise SourceError(f"{file.name}: a line is not a record: {error}") from None
