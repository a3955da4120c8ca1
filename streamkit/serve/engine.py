# SPDX-License-Identifier: Apache-2.0
"""The operations and views of a running pipeline behind the API. Addresses are always masked.

Only signed-in clients see the sources' addresses; see `ServeEngine.sources`.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.config.alarms import STAGE
from streamkit.config.checks.hiding import ALLOW, hidden_detectors, hidden_places, hiding
from streamkit.config.diagram import crossings, kind_name
from streamkit.config.pipeline_config import read_source, source_entry
from streamkit.config.plan import Graph, Node, SourceConfig
from streamkit.config.shape_options import SOURCES, shape_options
from streamkit.config.source_details import SourceDetails
from streamkit.config.validate import model_of
from streamkit.core.counters import Counters
from streamkit.core.errors import ConfigError, OutputError, StreamkitError, describe
from streamkit.core.logs import LogOnce, MessageStore
from streamkit.core.masking import mask, without_addresses
from streamkit.core.stage import options
from streamkit.core.text import did_you_mean
from streamkit.media.uris import is_path, scheme
from streamkit.runtime.control.graph_changes import LiveChanges
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.runtime.ingest.source_counts import short
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.live_load import LiveLoad, StageLoad
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.reload import ReloadingPipeline
from streamkit.runtime.run import Run
from streamkit.serve import api_models
from streamkit.serve.alarm_center import MAX_CHANGES, AlarmCenter
from streamkit.serve.api_models import RequestRejected, SourceView, StageView
from streamkit.serve.audit import AuditLog
from streamkit.serve.masked_urls import with_hidden_parts
from streamkit.serve.pipeline_file import PipelineFile
from streamkit.serve.problems import Problems
from streamkit.serve.push import PushCenter
from streamkit.serve.source_rights import SourceRights
from streamkit.serve.store.event_table import EventQuery
from streamkit.serve.store.recording_index import RecordingIndex
from streamkit.serve.store.review_table import Severity
from streamkit.serve.store.serve_store import ServeStore
from streamkit.stages.analytics.rule import RuleStage
from streamkit.stages.video.record import Record
from streamkit.stages.video.snapshot import Snapshot

logger = logging.getLogger(__name__)

_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_NETWORK = frozenset({"rtsp", "rtsps", "rtmp", "rtmps", "rtp", "udp", "tcp", "srt", "mms", "mmsh", "http", "https"})
_OBSERVE_EVERY_S = 1.0
_FIXED = frozenset({"uri", "stage", "fault"})  # options that the API may not change


class ServeEngine:
    """A running pipeline behind the API. Thread-safe.

    Args:
        running: the pipeline.
        gallery: the images and events of its preview.
        store: the events of this run and of earlier ones.
        allow_files: whether added sources may read this machine's files and devices.
        file: the YAML, if it can be read and edited; the pipeline follows it.

    Attributes:
        messages: the latest messages of the run.
        alarm_center: what people see and do about the alarms.
        problems: what is wrong.
        load: rates and load of the stages.
        recordings: the index of the recordings around the clock.
        rights: which sources the sender of a request may see.
        audit: the log of changes, once there is an API.
        push: sends alerts to browsers, once there is an API.
    """

    audit: AuditLog | None = None
    push: PushCenter | None = None

    def __init__(
        self,
        running: Run,
        gallery: Gallery,
        store: ServeStore,
        *,
        allow_files: bool = False,
        file: PipelineFile | None = None,
    ) -> None:
        self.running = running
        self.gallery = gallery
        self.store = store
        self.allow_files = allow_files
        self.file = file
        self.refused = Counters()  # requests and connections, by cause
        self.rights = SourceRights(running)
        self.recordings = RecordingIndex(store.folder, sees=self.rights.sees)
        self._started_s = time.monotonic()
        self._differs = 0
        self._entries: dict[str, tuple[SourceConfig, str, dict[str, Any]]] = {}  # by source
        self.messages = MessageStore()
        self.alarm_center = AlarmCenter(running.alarms, self.graph.config.alarms)
        center = self.alarm_center
        self.problems = Problems(running, center.raised, lambda: self.store.problem, center.facts)
        self._follow_graph()
        self._warn = LogOnce(logger.warning)

    def _follow_graph(self) -> None:
        """Take the graph of the pipeline, which an edit of the YAML may have rebuilt."""
        self._seen = self.graph
        self.store.masked_from(hidden_places(self._seen))
        self.load = LiveLoad(self._seen)
        kinds = (Record, Snapshot)
        nodes = self._seen.nodes.values()
        self.recordings.follow(_recording_folders(self._recorders_of_video()))
        self.store.set_stages(*([node.id for node in nodes if issubclass(node.type, kind)] for kind in kinds))
        self.store.set_severities(dict(_severities(self._seen)))

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """Keep the messages of the run, and look for problems and at the load once a second, while the block runs."""
        with self.messages.receiving():
            sending = contextlib.nullcontext() if self.push is None else self.push.sending()
            with PeriodicTimer(_OBSERVE_EVERY_S, self.observe), sending:
                yield
            if self.audit is not None:
                self.audit.close()

    def observe(self) -> None:
        """Look at the run once; called by the timer's thread."""
        now_s = time.monotonic()
        running = self.running
        try:
            self.store.masked_from(hidden_places(self.graph))
            if self.graph is not self._seen:
                self._follow_graph()
                self.alarm_center.follow(running.alarms, self._seen.config.alarms)
                self.problems.follow()
            self.problems.sample(now_s)
            self._differs = len(self.differences())
            if running.ready:
                running_sources = [state for state in list(running.states.values()) if state.state == "running"]
                paced = all(state.live or state.latency is not None for state in running_sources)
                self.load.sample(now_s, running.meters(), paced)
        except Exception as error:  # a failure must not end the observation
            self._warn(f"the state of the pipeline could not be computed: {describe(error)}")

    @property
    def graph(self) -> Graph:
        """The running graph."""
        return self.running.graph

    @property
    def device(self) -> str:
        """The names of the devices."""
        return ", ".join(map(str, self.running.devices))

    @property
    def ready(self) -> bool:
        """Whether every stage is open and frames are accepted."""
        return self.running.ready and not self.running.stopping and self.running.fatal is None

    # ---------------------------------------------------------------------------------------------------- sources

    def sources(self, *, addresses: bool = False) -> list[SourceView]:
        """All sources by their `order`, then as they were added; with masked addresses if `addresses` is set."""
        configs = {config.id: config for config in list(self.graph.sources)}
        present = [(id_, self.running.states[id_]) for id_ in self.source_ids()]
        views = [self._source(id_, state, configs.get(id_), addresses=addresses) for id_, state in present]
        return sorted(views, key=lambda view: view.order)

    def names(self) -> dict[str, str]:
        """What people call the sources that have a name, by id."""
        return {config.id: config.details.name for config in list(self.graph.sources) if config.details.name}

    def source(self, id_: str, *, addresses: bool = True) -> SourceView:
        """One source, with its masked address if `addresses` is set. Raises RequestRejected if there is none."""
        return self._source(id_, self.state(id_), self._configured(id_), addresses=addresses)

    def source_ids(self) -> list[str]:
        """The ids of the sources that the sender of the request may see, in the order they were added."""
        hidden = self.rights.hidden_ids()
        return [id_ for id_, state in list(self.running.states.items()) if not state.removed and id_ not in hidden]

    def source_name(self, id_: str) -> str:
        """What people call a source; its id if it has no name or is not there."""
        config = self._configured(id_)
        return (config.details.name if config is not None else "") or id_

    def ran_since(self, id_: str, time_s: float) -> bool:
        """Whether a source has been running without a break since a time in seconds since 1970."""
        state = self.running.states.get(id_)
        return state is not None and not state.removed and state.state == "running" and state.since_s <= time_s

    def state(self, id_: str) -> SourceState:
        """A source's state. Raises RequestRejected if there is none that the sender of the request may see."""
        state = self.running.states.get(id_)
        if state is None or state.removed or not self.rights.sees(id_):
            raise RequestRejected(404, f"there is no source {id_!r}")
        return state

    def add(self, new: api_models.NewSource) -> SourceView:
        """Add a source. Raises RequestRejected."""
        self._apply(self.running.add, self.new_source(new))
        return self.source(new.id)

    def new_source(self, new: api_models.NewSource) -> SourceConfig:
        """Check a source that is to be added. Raises RequestRejected."""
        if not _ID.fullmatch(new.id) or ".." in new.id:
            raise RequestRejected(
                422,
                f"an id consists of letters, digits, _, - and ., and begins with a letter, digit or _; got {new.id!r}",
            )
        present = self.running.states.get(new.id)
        if present is not None and not present.removed and not self.rights.sees(new.id):
            raise RequestRejected(409, "this id cannot be used; choose another one")
        if present is not None and not present.removed:
            raise RequestRejected(409, f"the source {new.id!r} exists already; change it, or remove it first")
        if self.rights.limited and (self.store.has_history(new.id) or self.recordings.has_any(new.id)):
            raise RequestRejected(409, "this id cannot be used; choose another one")  # its past may be of another group
        config = self._config(new.id, {}, new.uri, new.options)
        self.rights.check_group(config)
        return config

    def tested(self, id_: str, uri: str | None, options: dict[str, Any] | None) -> SourceConfig:
        """Check a source whose connection is to be tested.

        Args:
            id_: a source that is there, from which omitted values are taken; otherwise empty or any id.
            uri: the address, or None to keep it.
            options: the options, or None to keep them.

        Raises:
            RequestRejected: it cannot be added, or nothing is given.
        """
        if id_ in self.source_ids():
            return self._changed(id_, api_models.ChangedSource(uri, options))
        if uri is None:
            raise RequestRejected(422, "uri: the address to test is missing")
        return self._config("test", {}, uri, options or {})

    def change(self, id_: str, new: api_models.ChangedSource) -> SourceView:
        """Change the address or options of a source, and restart it. Raises RequestRejected."""
        self.state(id_)
        config = self._changed(id_, new)
        self.rights.check_group(config)
        self._apply(self.running.change, config)
        self.gallery.forget(id_)
        return self.source(id_)

    def change_details(self, id_: str, details: dict[str, Any]) -> SourceView:
        """Change what people call a source and how they sort it; it goes on. Raises RequestRejected."""
        config = self._configured(id_)
        if config is None:
            raise RequestRejected(404, f"there is no source {id_!r}")
        entry = {name: value for name, value in source_entry(config).items() if name not in details}
        entry |= {name: value for name, value in details.items() if value or name == "order"}
        config = self._config(id_, entry, None, None)
        self.rights.check_group(config)
        self._apply(self.running.change, config)
        return self.source(id_)

    def remove(self, id_: str) -> None:
        """Remove a source; its decoded frames are still processed. Raises RequestRejected."""
        self.state(id_)
        self._apply(self.running.remove, id_)
        self._entries.pop(id_, None)
        self.gallery.forget(id_)

    def pause(self, id_: str) -> SourceView:
        """Pause a source until it is resumed. Raises RequestRejected."""
        self.state(id_)
        self._apply(self.running.pause, id_)
        return self.source(id_)

    def resume(self, id_: str) -> SourceView:
        """Resume a paused source. Raises RequestRejected."""
        self.state(id_)
        self._apply(self.running.resume, id_)
        return self.source(id_)

    def record(self, id_: str) -> SourceView:
        """Let every stage that records start a clip of a source, or extend the current one. Raises RequestRejected."""
        source = self.source(id_)
        recorders = self._recorders()
        if not recorders:
            raise RequestRejected(409, "no stage of this pipeline records; add the stage `record`")
        if not source.packets:
            raise RequestRejected(
                409,
                f"{id_} is a {source.kind}, which has no packets to record; only videos and cameras can be recorded",
            )
        if source.state != "running":
            reason = f": {source.message}" if source.message else ""
            raise RequestRejected(
                409, f"{id_} delivers no frames: it is {source.state}{reason}; record it when it is running"
            )
        for name in recorders:
            self._apply(self.running.trigger, name, id_)
        return self.source(id_)

    def hides(self) -> list[str]:
        """The stages that hide objects or places at present."""
        return [node.id for node in hiding(self.graph)]

    def check_clip(self) -> None:
        """Check that clips, which have the cameras' own video, may be shown. Raises RequestRejected."""
        recorders = self._recorders_of_video()
        allowed = bool(recorders) and all(node.options.get("hidden") == ALLOW for node in recorders)
        if not allowed and (hides := self.hides()):
            hint = f"write `hidden: {ALLOW}` under {recorders[0].id} in the YAML" if recorders else "download it there"
            raise RequestRejected(
                403, f"the clip shows what {', '.join(hides)} hides; to show clips nevertheless, {hint}"
            )

    def check_image(self, number: int, *, snapshot: bool = False) -> None:
        """Check that the image of an event hides what images hide now. Raises RequestRejected.

        Args:
            number: the event's number.
            snapshot: whether it is the file of a `snapshot` stage.
        """
        shooters = [node for node in self._nodes() if issubclass(node.type, Snapshot)]
        if snapshot and shooters and all(node.options.get("show_hidden") for node in shooters):
            return
        masked_from = self.store.masked_from(hidden_places(self.graph))
        hides = self.hides()
        if hides and number < masked_from:
            raise RequestRejected(
                403, f"the image of event {number} is older than what {', '.join(hides)} hides now, and may show it"
            )

    def check_video(self, id_: str) -> None:
        """Check that a source's own video may be shown and that it has one. Raises RequestRejected."""
        self.state(id_)
        if hides := self.hides():
            raise RequestRejected(
                403,
                f"the camera's own video shows what {', '.join(hides)} hides: watch live.mjpg, or remove blur and "
                f"pixelate from {hides[0]}",
            )
        config = self._configured(id_)
        if config is None or not config.type.spec.reads_packets:
            raise RequestRejected(
                409, f"{id_} is a {self.source(id_).kind}, which has no video of its own: watch live.mjpg"
            )

    def _configured(self, id_: str) -> SourceConfig | None:
        return next((source for source in list(self.graph.sources) if source.id == id_), None)

    def _recorders_of_video(self) -> list[Node]:
        return [node for node in self._nodes() if issubclass(node.type, Record)]

    def _recorders(self) -> list[str]:
        return [node.id for node in self._nodes() if node.type.spec.on_demand]

    def _changed(self, id_: str, new: api_models.ChangedSource) -> SourceConfig:
        """A source with its changes applied; everything else is kept."""
        config = self._configured(id_)
        if config is None:
            raise RequestRejected(404, f"there is no source {id_!r}")
        entry = source_entry(config)
        unchanged = sorted(entry.keys() - _FIXED) if new.options is None else []
        try:
            return self._config(id_, entry, new.uri, new.options)
        except RequestRejected as error:
            if not unchanged or error.status != 422:
                raise
            hint = f"; it keeps the options {', '.join(unchanged)}: send `options` to replace them"
            raise RequestRejected(422, error.text + hint) from None

    def _config(self, id_: str, entry: dict[str, Any], uri: str | None, options: dict[str, Any] | None) -> SourceConfig:
        """A source's entry with another address and other options, each unless None, checked like a YAML entry."""
        if options is not None:
            if clash := sorted(_FIXED & options.keys()):
                raise RequestRejected(422, f"the option {clash[0]} cannot be set here")
            unmasked = {
                name: entry[name] for name, value in options.items() if name in entry and value == _masked(entry[name])
            }
            entry = {**{name: value for name, value in entry.items() if name in _FIXED}, **options, **unmasked}
        if uri is not None:
            uri = with_hidden_parts(uri, str(entry.get("uri", "")))
            self._check_address(uri)
            entry = {**entry, "uri": uri}
        try:
            sources = read_source(self.graph.config, id_, entry)
        except ConfigError as error:
            raise RequestRejected(422, mask("; ".join(problem.text for problem in error.problems))) from None
        if len(sources) != 1:
            raise RequestRejected(422, f"the address matches {len(sources)} videos; add each video separately")
        return sources[0]

    def _check_address(self, uri: str) -> None:
        if not self.allow_files and scheme(uri) not in _NETWORK | {"test"}:
            kind = "a path" if is_path(uri) else f"{scheme(uri)}://"
            raise RequestRejected(
                403,
                f"{kind} reads from this machine, which is not allowed: give an address such as rtsp://host/stream, "
                "or start the server with --allow-files",
            )

    @staticmethod
    def _apply(call: Callable[..., Any], *arguments: Any) -> None:
        try:
            call(*arguments)
        except StreamkitError as error:
            raise RequestRejected(409, mask(str(error))) from None

    def _source(self, id_: str, state: SourceState, config: SourceConfig | None, *, addresses: bool) -> SourceView:
        address, source_options = self._masked_entry(id_, config)
        details = config.details if config is not None else SourceDetails()
        quiet_s = self.problems.quiet_s(id_)
        text = state.error or state.message
        message = mask(text).removeprefix(address).lstrip(": ") if text else ""
        return SourceView(
            id=id_,
            name=details.name or id_,
            group=details.group,
            site=details.site,
            tags=list(details.tags),
            order=details.order,
            address=address if addresses else "",
            options=source_options if addresses else {},
            kind=config.type.name if config is not None else "",
            state=state.state,
            cause=state.cause,
            message=message if addresses else without_addresses(message),
            since_s=round(max(0.0, time.time() - state.since_s), 1),
            quiet_s=None if quiet_s is None else round(quiet_s, 1),
            frames=state.frames,
            fps=round(state.fps_out, 2),
            dropped=short(state.drops.values),
            reconnects=state.reconnects_by_cause(),
            latency=state.latency.summary() if state.latency is not None and state.latency.counts.any() else {},
            counts=state.further(SourceView.__slots__),
            packets=bool(config.type.spec.reads_packets) if config is not None else False,
        )

    def _masked_entry(self, id_: str, config: SourceConfig | None) -> tuple[str, dict[str, Any]]:
        """The masked address and options of a source; masking 500 of them takes a tenth of a second, so it is kept."""
        if config is None:
            self._entries.pop(id_, None)
            return "", {}
        before = self._entries.get(id_)
        if before is None or before[0] is not config:
            before = self._entries[id_] = (config, mask(str(config.options.get("uri", ""))), _options(config))
        return before[1], before[2]

    # ----------------------------------------------------------------------------------------------------- stages

    def stages(self) -> list[StageView]:
        """The stages of the graph, each after its inputs."""
        meters = self.running.meters()
        queues = self.running.queues()
        loads = self.load.stages
        return [
            self._stage(node, meters.get(node.id, {}), queues.get(node.id, 0), loads.get(node.id, StageLoad()))
            for node in self._nodes()
        ]

    def _nodes(self) -> Iterator[Node]:
        return (node for node in self.graph.nodes.values() if "gallery" not in node.options)

    def _stage(self, node: Node, meter: dict[str, Any], queue: int, load: StageLoad) -> StageView:
        on_gpu = node.on_device and self.running.device.kind == "cuda"
        limited = self.rights.limited
        return StageView(
            id=node.id,
            type=node.type.name,
            kind=kind_name(node.type),
            where=self.device if on_gpu else "host",
            inputs=list(node.inputs),
            adds=list(node.type.spec.writes),
            crossings=crossings(self.graph, node) if self.running.device.kind == "cuda" else [],
            frames=0 if limited else meter.get("frames", 0),  # sums over all cameras
            failed=0 if limited else meter.get("failed", 0),
            us_per_frame=None if limited else meter.get("us_per_frame"),
            fps=0.0 if limited else load.fps,
            busy=0.0 if limited else load.busy,
            queue=0 if limited else queue,
            settings=[] if limited else self._settings(node),
        )

    def _last_seen_event(self) -> int:
        """The number of the latest event that the sender of the request may see; 0 without one."""
        visible = self.rights.visible()
        if visible is None:
            return self.store.last_number
        latest = self.store.events(EventQuery(sources=visible), 1)
        return latest[0].number if latest else 0

    def _settings(self, node: Node) -> list[api_models.Setting]:
        values = self.running.changeable(node.id)
        if not values:
            return []
        schema = model_of(node.type).json_schema()["properties"]
        config = next((stage for stage in self.graph.config.stages if stage.id == node.table), None)
        help_by_option = {} if config is None else {option.name: option.help for option in options(config.type)}
        in_zone_editor = {shape_option.path[0] for shape_option in shape_options(node.type)} | {SOURCES}
        return [
            api_models.Setting(
                option.name,
                _masked(values[option.name]),
                option.help or help_by_option.get(option.name, ""),
                schema.get(option.name, {}),
            )
            for option in options(node.type)
            if option.name in values and option.name not in in_zone_editor
        ]

    def set(self, id_: str, values: dict[str, Any]) -> StageView:
        """Change settings of a running stage, all of them or none; return the stage.

        Of a stage with parts, such as `detect`, the settings are those of its parts, and the part is returned that has
        most of them.

        Raises:
            RequestRejected: there is no such stage, a setting is wrong, or the state cannot be written.
        """
        nodes = self._nodes_of(id_)
        live = self.running.changeable(id_)
        for name in values:
            if name not in live:
                may = f"; these can: {', '.join(live)}" if live else f"; {id_} has no such settings"
                raise RequestRejected(422, f"{name} cannot be changed while the pipeline runs{may}")
        try:
            self.running.set(id_, values)
        except OutputError as error:  # of the state file
            raise RequestRejected(409, mask(str(error))) from None
        except (StreamkitError, ValueError) as error:
            raise RequestRejected(422, mask(str(error))) from None
        changed = max(nodes, key=lambda node: len(values.keys() & {*node.type.spec.changeable}))
        return next(stage for stage in self.stages() if stage.id == changed.id)

    def check_settings(self, id_: str) -> None:
        """Check that the settings of a stage do not change what is hidden: of whom an admin decides only.

        Raises:
            RequestRejected: there is no such stage, or objects of it are hidden.
        """
        hidden = hidden_detectors(self.graph)
        for node in self._nodes_of(id_):
            if node.table in hidden:
                raise RequestRejected(
                    403,
                    f"{hidden[node.table]} hides objects of {node.table}, and other settings could leave them visible: "
                    "this needs the role admin",
                )

    def _nodes_of(self, id_: str) -> list[Node]:
        """The stage with that id, or its parts. Raises RequestRejected."""
        nodes_by_id = {node.id: [node] for node in self._nodes()}
        for whole in self.graph.aliases:
            nodes_by_id[whole] = [node for node in self._nodes() if node.table == whole]
        if not nodes_by_id.get(id_):
            raise RequestRejected(404, f"there is no stage {id_!r}{did_you_mean(id_, nodes_by_id)}")
        return nodes_by_id[id_]

    # ------------------------------------------------------------------------------------------------------- YAML

    def live_changes(self) -> LiveChanges:
        """What calls have changed in the running pipeline against its YAML."""
        return self.running.live_changes() if isinstance(self.running, ReloadingPipeline) else LiveChanges()

    def differences(self) -> list[api_models.DifferenceView]:
        """How the running pipeline differs from its YAML; of the sources that the sender of the request may see."""
        return [
            api_models.DifferenceView(difference.kind, difference.id, mask(difference.text))
            for difference in self.live_changes().differences()
            if not self.rights.limited or (difference.kind == "source" and self.rights.sees(difference.id))
        ]

    def take_back(self) -> None:
        """Let the running pipeline be as its YAML says. Raises RequestRejected."""
        changes = self.live_changes()
        self._apply(changes.take_back, self.running)
        for source in changes.sources:
            self.gallery.forget(source.id)

    def rebuild_reasons(self, graph: Graph | None) -> list[str]:
        """What a graph has that cannot be applied while the pipeline runs; empty for none."""
        if graph is None or not isinstance(self.running, ReloadingPipeline):
            return []
        return self.running.rebuild_reasons(graph)

    # ------------------------------------------------------------------------------------------------------ whole

    def status_problems(self) -> list[api_models.PipelineProblem]:
        """What is wrong with what the sender of the request may see."""
        return self.problems.current(self.rights.sees_problem if self.rights.limited else None)

    def alarms(self) -> list[api_models.AlarmView]:
        """The alarms, and where they are raised among the sources that the sender of the request may see.

        With a limit, an alarm whose rule names another source is left out.
        """
        views = self.alarm_center.views()
        if not self.rights.limited:
            return views
        changes = self.alarm_changes(MAX_CHANGES)
        return [
            replace(
                view,
                count=sum(change.kind == "raised" and change.alarm == view.name for change in changes),
                raised=[alarm for alarm in view.raised if self.rights.sees(alarm.source)],
            )
            for view in views
            if not self.rights.names_hidden(f"{view.name} {view.rule}")
        ]

    def alarm_changes(self, limit: int) -> list[api_models.AlarmChange]:
        """The latest raised and cleared alarms of what the sender of the request may see, newest first."""
        changes = self.alarm_center.changes(MAX_CHANGES)
        return [change for change in changes if self.rights.sees(change.source)][:limit]

    def acknowledge_alarm(self, name: str, source: str) -> api_models.AlarmView:
        """Note that a person knows of a raised alarm. Raises RequestRejected."""
        if self.rights.limited:
            if all(view.name != name for view in self.alarms()):
                raise RequestRejected(404, f"there is no alarm {name!r}")
            self.state(source)
        self.alarm_center.acknowledge(name, source)
        return next(view for view in self.alarms() if view.name == name)

    def acknowledge(self, id_: str) -> api_models.PipelineProblem:
        """Note that a person knows of a problem, and of the alarms that it has raised. Raises RequestRejected."""
        problem, alarms = self.problems.acknowledge(id_, self.rights.sees_problem if self.rights.limited else None)
        for alarm in alarms:
            with contextlib.suppress(RequestRejected):  # it was cleared meanwhile
                self.alarm_center.acknowledge(alarm.alarm, alarm.source)
        return problem

    def status(self) -> api_models.Status:
        """The pipeline as a whole."""
        from streamkit import __version__

        running = self.running
        limited = self.rights.limited
        return api_models.Status(
            version=__version__,
            time_s=round(time.time(), 3),
            device=self.device,
            ready=self.ready,
            opening=[] if self.ready else list(running.opening),
            stopping=running.stopping,
            uptime_s=round(time.monotonic() - self._started_s, 1),
            frames=sum(running.states[id_].frames for id_ in self.source_ids()) if limited else running.frames,
            detections={} if limited else dict(running.detections),
            events={} if limited else dict(running.events),
            counts={} if limited else running.counts(),
            emits=[
                *(node.id for node in self._nodes() if "events" in node.type.spec.writes),
                *([STAGE] if running.alarms.rules() else []),
            ],
            records=self._recorders(),
            alarms=[alarm for alarm in self.alarm_center.raised() if self.rights.sees(alarm.source)],
            problems=self.status_problems(),
            bottleneck=api_models.BottleneckView(self.load.bottleneck.stage, self.load.bottleneck.text),
            last_event=self._last_seen_event(),
            hides=self.hides(),
            allow_files=self.allow_files,
            differs=len(self.differences()) if limited else self._differs,
            edit_rejected=isinstance(running, ReloadingPipeline) and bool(running.rejected),
        )


def _recording_folders(recorders: list[Node]) -> list[Path]:
    """The folders of recordings around the clock, and their archives."""
    folders = []
    for node in recorders:
        if node.options.get("continuous"):
            stage: Any = node.type(**node.options)
            folders += [Path(stage.folder), *([Path(stage.archive["path"])] if stage.archive else [])]
    return folders


def _severities(graph: Graph) -> Iterator[tuple[tuple[str, str], Severity]]:
    """How severe what rules raise is, by the stage's id and the rule's name."""
    for node in graph.nodes.values():
        if issubclass(node.type, RuleStage):
            yield (node.id, node.id), node.options.get("severity", "alert")
            for name, options in node.options.get("rules", {}).items():
                yield (node.id, name), options.get("severity", "alert")


def _options(config: SourceConfig) -> dict[str, Any]:
    """The options given for a source, with secrets masked."""
    return {name: _masked(value) for name, value in source_entry(config).items() if name not in _FIXED}


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _masked(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_masked(part) for part in value]
    return mask(value) if isinstance(value, str) else value
