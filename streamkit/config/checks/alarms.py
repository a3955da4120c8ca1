# SPDX-License-Identifier: Apache-2.0
"""Reads `alarms:` of a YAML: compiles each rule and checks the emitters that it names."""

from __future__ import annotations

from dataclasses import replace

from streamkit.config.alarms import STAGE, Alarm, AlarmConfig, takes_alarms, vocabulary
from streamkit.config.plan import Config, StageConfig, Unread
from streamkit.config.validate import OptionValidator
from streamkit.core.errors import MissingPackage, Problem
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import YamlNode, within
from streamkit.emit.emitter import Emitter
from streamkit.media.uris import mask
from streamkit.rules.language import compile_rule, facts_of
from streamkit.rules.rule import Rule
from streamkit.rules.syntax import RuleError


def read_alarms(config: Config, node: YamlNode | None, validate: OptionValidator) -> None:
    """Add the alarms of `alarms:` to a configuration whose stages are read; problems go to `config.problems`."""
    if node is None:
        return
    if not isinstance(node.value, dict):
        text = 'alarms must be a mapping: a name and a rule for each, as in camera_down: {when: "down_s > 30"}'
        config.problems.append(node.problem(text))
        config.alarms_complete = False
        return
    text = "alarms is the stage of the events of alarms:, and cannot be another's id; give this another one"
    config.problems.extend(stage.node.problem(text) for stage in config.stages if stage.id == STAGE)
    for name, entry in node.value.items():
        alarm = _read(config, name, entry, validate)
        if alarm is None:
            config.alarms_complete = False
        else:
            config.alarms.append(alarm)
    takers = [stage for stage in config.stages if _sends(stage) == "events" and takes_alarms(stage.options.get("when"))]
    unread = not config.stages or any(stage.type is Unread for stage in config.stages)
    if config.alarms and not takers and not unread:
        text = "no emitter takes alarms, so they appear only in the log, the report and streamkit serve"
        hint = "add one such as email, or write send: events where there is one"
        config.warnings.append(node.problem(f"{text}; {hint}"))


def _read(config: Config, name: str, entry: YamlNode, validate: OptionValidator) -> AlarmConfig | None:
    place = entry if isinstance(entry.value, dict) else replace(entry, value={"when": entry})
    values = validate(Alarm, place, f"alarms.{name}")
    _check_emitters(config, name, place)
    if values is None:
        return None
    options = Alarm(**values)
    when = place.value["when"]
    try:
        condition, for_s = compile_rule(options.when, vocabulary())
    except RuleError as error:
        for mistake in error.all:
            text = mask(f"alarms.{name}.when: {mistake.reason}")
            config.problems.append(Problem(when.file, *within(when, mistake.offset), text))
        return None
    except MissingPackage as error:
        config.problems.append(when.problem(f"alarms.{name}: {error}"))
        return None
    if not facts_of(condition):
        config.problems.append(when.problem(f"alarms.{name}.when names no fact; streamkit explain alarms lists them"))
        return None
    rule = Rule(name, condition, None, for_s, options.clear, options.cooldown, options.schedule)
    return AlarmConfig(name, options, rule, place)


def _check_emitters(config: Config, name: str, place: YamlNode) -> None:
    """Check that `to` names emitters that send events and accept those of alarms."""
    stages = {stage.id: stage for stage in config.stages}
    emitters = [id_ for id_, stage in stages.items() if _sends(stage) is not None]
    named = place.value.get("to")
    entries = [] if named is None else named.value if isinstance(named.value, list) else [named]
    if named is not None and not entries:
        text = f"alarms.{name}.to must name emitters, and names none; leave it out for all that have send: events"
        config.problems.append(named.problem(text))
    for entry in entries if stages else ():
        stage = stages.get(str(entry.value))
        if stage is None or _sends(stage) is None:
            what = "there is none" if stage is None else "is no emitter"
            hint = did_you_mean(str(entry.value), emitters, all_if_few=True) or "; put one under stages, such as email"
            text = f"alarms.{name}.to must name emitters, got {entry.plain()!r}: {what}{hint}"
        elif (sends := _sends(stage)) != "events":
            text = f"alarms.{name}.to: {stage.id} has send: {sends}, and alarms are events; write send: events there"
        elif not takes_alarms(stage.options.get("when")):
            text = f"alarms.{name}.to: {stage.id} takes no alarms; add alarms to its when, or leave its when out"
        else:
            continue
        if stage is None or stage.type is not Unread:
            config.problems.append(entry.problem(text))


def _sends(stage: StageConfig) -> str | None:
    """The option `send` of an emitter; None for another stage."""
    return stage.options.get("send", stage.type.send) if issubclass(stage.type, Emitter) else None
