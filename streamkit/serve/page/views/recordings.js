// The view `recordings`: up to four cameras around one clock, with their timelines below each other.

import { Trouble } from "../api.js";
import { now_s } from "../clock.js";
import { colorOf } from "../colors.js";
import { make, text, why } from "../dom.js";
import { listRecordings } from "../recordings/archive.js";
import { CameraPicker, MAX_CAMERAS } from "../recordings/camera_picker.js";
import { ExportRange } from "../recordings/export_range.js";
import { Lane } from "../recordings/lane.js";
import { LaneLoader, eventBeside } from "../recordings/lane_loader.js";
import { FASTEST_VIDEO } from "../recordings/pane.js";
import { Period, lengthOf, localInput, momentWords, zoneWords } from "../recordings/period.js";
import { Stage } from "../recordings/stage.js";
import { Timeline } from "../recordings/timeline.js";
import { Transport, actionOf } from "../recordings/transport.js";
import { address } from "../router.js";
import { lost, onSession, signedIn } from "../session.js";
import { rich, t } from "../strings.js";

/** @typedef {import("../recordings/archive.js").Recording} Recording */
/** @typedef {import("../recordings/transport.js").Action} Action */
/** @typedef {import("../recordings/lane.js").LaneEvent} LaneEvent */

const TURN_MS = 60;
const LIST_EVERY_MS = 15_000;
const FIRST_SPAN_S = 1200;
const LATEST_AT = 0.88; // where the end of what is recorded is on the timeline at first
const BEFORE_END_S = 20; // where the view opens, before the end of what is recorded
const ZOOM = 1.6;
const PAGE_AT = 0.92; // of the timeline, where it moves on with the playhead

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  const view = new RecordingsView(root, params);
  return {
    update: (/** @type {import("./index.js").State} */ state) => view.update(state), close: () => view.close(), everyMs: 2000,
  };
}

class RecordingsView {
  /**
   * @param {HTMLElement} root
   * @param {URLSearchParams} params
   */
  constructor(root, params) {
    /** @type {string[]} */
    this.chosen = [...new Set(params.getAll("source"))].slice(0, MAX_CAMERAS);
    this.at_s = Number(params.get("at")) || 0;
    /** @type {Recording[] | null} */
    this.recordings = null;
    /** @type {import("../types").SourceView[]} */
    this.sources = [];
    /** @type {Map<string, Lane>} */
    this.lanes = new Map();
    this.resumes = false;
    this.stepping = false;
    this.closed = false;
    this.origin_s = 0; // the wall time of the media time 0, once it is known what is recorded
    this.stage = new Stage(this.at_s || now_s(), { skip: (to_s) => this.skip(to_s), end: () => this.end() });
    this.clock = this.stage.clock;
    this.picker = new CameraPicker((ids) => this.choose(ids));
    this.transport = new Transport((action) => this.act(action), (speed) => this.setSpeed(speed));
    this.timeline = new Timeline(Period.around(this.clock.time_s, FIRST_SPAN_S), {
      scrub: (time_s, phase, event) => this.scrub(time_s, phase, event), period: () => this.periodChanged(),
    });
    this.loader = new LaneLoader(() => this.timeline.draw(), (trouble) => this.failed(trouble));
    this.range = new ExportRange(this.timeline, () => this.transport.exports.focus());
    this.when = make("input", { type: "datetime-local", id: "recordings-when", step: 1, required: true });
    this.zone = make("span", { class: "zone" });
    this.empty = make("p", { class: "empty", hidden: true });
    this.names = make("div", { class: "lane-names", "aria-hidden": "true" });
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.root = make("div", { class: "recordings" }, make("h2", { class: "unseen" }, t("recordings.title")), this.tools(),
      make("div", { class: "stage" }, this.problem, this.stage.element, this.empty, this.range.element), this.transport.element,
      make("div", { class: "timelines" }, this.names, this.timeline.element));
    root.append(this.root);
    this.onKey = (/** @type {KeyboardEvent} */ event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
    this.sized = new ResizeObserver(() => this.root.style.setProperty("--header", `${this.root.offsetTop}px`));
    this.sized.observe(document.body);
    this.turns = setInterval(() => this.stage.turn(), TURN_MS);
    this.lists = setInterval(() => document.hidden || this.load(), LIST_EVERY_MS);
    this.stopSession = onSession(() => this.load());
    this.painting = 0;
    this.paint();
    this.showSpan();
    this.load();
  }

  tools() {
    const latest = t("recordings.latest");
    return make("div", { class: "tools" }, this.picker.element,
      make("form", { class: "jump", onsubmit: (event) => this.jump(event) },
        make("label", { for: "recordings-when" }, t("recordings.when")), this.when, this.zone, make("button", {}, t("recordings.go"))),
      make("button", { type: "button", title: t("recordings.withKey", { action: latest, key: "L" }), onclick: () => this.act("latest") }, latest),
      make("details", { class: "keys" }, make("summary", {}, t("recordings.keys")), make("p", {}, ...rich(t("recordings.keys.list")))));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { target } = event;
    if (target !== document.body && !(target instanceof Node && this.root.contains(target))) return;
    const action = actionOf(event);
    if (!action) return;
    event.preventDefault();
    this.act(action);
  }

  paint() {
    this.painting = requestAnimationFrame(() => this.paint());
    if (this.clock.playing) this.showTime();
  }

  // ---------------------------------------------------------------------------------------------------- what there is

  async load() {
    try {
      this.recordings = await listRecordings();
      this.problem.hidden = true;
    } catch (trouble) {
      this.failed(trouble);
      return;
    }
    if (this.closed) return;
    this.begin();
    this.arrange();
    if (this.timeline.period.has(now_s())) this.loader.soon([...this.lanes.values()], this.timeline.period);
  }

  /** @param {unknown} trouble */
  failed(trouble) {
    if (this.closed) return;
    if (trouble instanceof Trouble && trouble.status === 401) lost();
    text(this.problem, signedIn ? why(trouble) : t("recordings.signIn"));
    this.problem.hidden = false;
    this.arrange();
  }

  /** Where the view opens: at the time of the address, or before the end of what is recorded. */
  begin() {
    /** @type {Recording[]} */
    const recordings = this.recordings ?? [];
    if (this.origin_s || !recordings.length) return;
    this.origin_s = Math.floor(Math.min(...recordings.map(({ first_s }) => first_s))) - 86400;
    if (!this.chosen.length) this.chosen = recordings.map(({ source }) => source).slice(0, MAX_CAMERAS);
    const time_s = this.at_s || Math.max(...recordings.map(({ last_s }) => last_s)) - BEFORE_END_S;
    const before_s = FIRST_SPAN_S * (this.at_s ? 0.5 : LATEST_AT);
    this.timeline.show(new Period(time_s - before_s, time_s - before_s + FIRST_SPAN_S));
    this.seek(time_s);
  }

  /** @param {import("./index.js").State} state */
  update({ sources }) {
    this.sources = sources;
    this.arrange();
  }

  /** @param {string} id */
  nameOf(id) {
    return this.sources.find((source) => source.id === id)?.name || id;
  }

  /** @param {string[]} ids */
  choose(ids) {
    this.chosen = ids;
    this.arrange();
    this.remember();
  }

  /** Makes the panes and lanes of the cameras that are chosen. */
  arrange() {
    const recorded = new Set((this.recordings ?? []).map(({ source }) => source));
    const ids = [...new Set([...this.sources.map(({ id }) => id), ...recorded, ...this.chosen])];
    const groupOf = (/** @type {string} */ id) => this.sources.find((source) => source.id === id)?.group ?? "";
    const cameras = ids.map((id) => ({ id, name: this.nameOf(id), group: groupOf(id), recorded: recorded.has(id) }));
    cameras.sort((first, second) => Number(second.recorded) - Number(first.recorded));
    this.picker.show(cameras, this.chosen);
    if (this.origin_s && this.stage.choose(this.chosen, this.origin_s, colorOf)) this.arrangeLanes();
    for (const pane of this.stage.panes.values()) pane.setName(this.nameOf(pane.id));
    for (const name of /** @type {HTMLCollectionOf<HTMLElement>} */ (this.names.children)) text(name, name.title = this.nameOf(name.dataset.source ?? ""));
    const shown = this.stage.panes.size > 0;
    this.stage.element.hidden = !shown;
    this.empty.hidden = shown || this.recordings === null;
    if (!this.empty.hidden) this.empty.replaceChildren(...rich(t(recorded.size ? "recordings.pick" : "recordings.never")));
  }

  arrangeLanes() {
    this.lanes = new Map(this.chosen.map((id) => [id, this.lanes.get(id) ?? new Lane(id, colorOf(id))]));
    this.timeline.setLanes([...this.lanes.values()]);
    this.names.replaceChildren(...this.chosen.map((id) => {
      const name = make("span", { "data-source": id, title: this.nameOf(id) }, this.nameOf(id));
      name.style.setProperty("--camera", colorOf(id));
      return name;
    }));
    if (this.range.open) this.range.setCameras(this.cameras);
    this.periodChanged();
    this.stage.turn();
  }

  get cameras() {
    return this.chosen.map((id) => ({ id, name: this.nameOf(id) }));
  }

  // ------------------------------------------------------------------------------------------------------------ time

  /** @param {number} to_s */
  skip(to_s) {
    this.transport.say(t("recordings.skipped", { length: lengthOf(to_s - this.clock.time_s) }));
    this.seek(to_s + 0.001);
  }

  end() {
    this.play(false);
    this.transport.say(t("recordings.end"));
  }

  showTime() {
    const { time_s } = this.clock;
    const { period } = this.timeline;
    const share = period.share(time_s);
    if (this.clock.playing && share > PAGE_AT && share < 1.2) this.timeline.show(period.moved((share - 0.1) * period.span_s));
    this.timeline.setTime(time_s);
    this.transport.setTime(time_s);
    if (document.activeElement !== this.when) {
      const local = localInput(time_s);
      if (this.when.value !== local) this.when.value = local;
    }
    text(this.zone, zoneWords(time_s));
  }

  /** @param {number} time_s */
  seek(time_s) {
    this.stage.seek(time_s);
    this.showTime();
    this.remember();
  }

  /**
   * @param {number} time_s
   * @param {"move" | "end"} phase of a drag; `end` alone is a jump
   * @param {LaneEvent | null} event
   */
  scrub(time_s, phase, event) {
    if (phase === "move") {
      if (!this.stage.scrubbing) {
        this.resumes = this.clock.playing;
        this.clock.play(false);
      }
      this.stage.scrubbing = true;
      this.clock.seek(time_s);
      this.stage.turn();
      this.showTime();
      return;
    }
    const resumes = this.stage.scrubbing && this.resumes;
    this.stage.scrubbing = false;
    this.resumes = false;
    this.seek(time_s);
    if (resumes) this.clock.play(true);
    if (event) this.sayEvent(event);
  }

  /** @param {LaneEvent} event */
  sayEvent(event) {
    this.transport.say(t("recordings.event", { text: event.text, source: this.nameOf(event.source) }), " ",
      make("a", { href: address("events", { number: event.number }) }, t("recordings.openEvent")));
  }

  /** @param {SubmitEvent} event */
  jump(event) {
    event.preventDefault();
    const time_s = new Date(this.when.value).getTime() / 1000;
    if (!Number.isFinite(time_s)) return;
    this.goTo(time_s);
  }

  /** @param {number} time_s */
  goTo(time_s) {
    if (!this.timeline.period.has(time_s)) this.timeline.show(Period.around(time_s, this.timeline.period.span_s));
    this.seek(time_s);
    this.transport.say(t("recordings.at", { time: momentWords(time_s) }));
  }

  // --------------------------------------------------------------------------------------------------------- actions

  /** @param {Action} action */
  act(action) {
    if (action === "play") this.play(!this.clock.playing);
    else if (action === "frameBack" || action === "frameForth") this.stepFrame(action === "frameForth" ? 1 : -1);
    else if (action === "eventBack" || action === "eventForth") this.stepEvent(action === "eventForth" ? 1 : -1);
    else if (action === "zoomIn" || action === "zoomOut") this.timeline.zoom(action === "zoomIn" ? 1 / ZOOM : ZOOM);
    else if (action === "panBack" || action === "panForth") this.timeline.pan(action === "panForth" ? 0.5 : -0.5);
    else if (action === "export") this.toggleExport();
    else this.goLatest();
  }

  /** @param {boolean} playing */
  play(playing) {
    this.clock.play(playing && this.stage.panes.size > 0);
    this.transport.setPlaying(this.clock.playing);
    this.stage.gapSince_ms = 0;
    if (playing) this.transport.say("");
    else this.remember();
    this.stage.turn();
    this.showTime();
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.clock.setSpeed(speed);
    this.transport.say(speed > FASTEST_VIDEO ? t("recordings.byKeyframes") : "");
    this.stage.turn();
  }

  /** @param {1 | -1} by */
  async stepFrame(by) {
    if (this.stepping) return;
    this.stepping = true;
    this.play(false);
    const next_s = await this.stage.frameBeside(by);
    this.stepping = false;
    if (next_s === null || this.closed) return;
    this.clock.seek(next_s);
    this.stage.turn();
    this.showTime();
    this.remember();
  }

  /** @param {1 | -1} by */
  async stepEvent(by) {
    const { time_s } = this.clock;
    try {
      const events = await Promise.all(this.chosen.map((id) => eventBeside(id, time_s, by, now_s())));
      const [next] = events.flatMap((event) => event ?? []).sort((first, second) => by * (first.time_s - second.time_s));
      if (!next) return this.transport.say(t(by > 0 ? "recordings.noLater" : "recordings.noEarlier"));
      this.goTo(next.time_s);
      this.sayEvent(next);
    } catch (trouble) {
      this.failed(trouble);
    }
  }

  goLatest() {
    const chosen = (this.recordings ?? []).filter(({ source }) => this.chosen.includes(source));
    if (chosen.length) this.goTo(Math.max(...chosen.map(({ last_s }) => last_s)) - 1);
  }

  toggleExport() {
    if (this.range.open) return this.range.end();
    const { period, time_s } = this.timeline;
    const half_s = Math.min(60, period.span_s / 8);
    this.range.begin(time_s - half_s, time_s + half_s, this.cameras);
    this.range.from.focus();
  }

  periodChanged() {
    this.loader.soon([...this.lanes.values()], this.timeline.period);
    this.range.place();
    this.showSpan();
  }

  showSpan() {
    text(this.transport.span, lengthOf(this.timeline.period.span_s));
  }

  /** Keeps the address up to date: it can be bookmarked and sent. */
  remember() {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => {
      if (this.closed || !this.origin_s) return;
      const params = new URLSearchParams([...this.chosen.map((id) => ["source", id]), ["at", this.clock.time_s.toFixed(3)]]);
      history.replaceState(null, "", `${address("recordings")}?${params}`);
    }, 300);
  }

  close() {
    this.closed = true;
    document.removeEventListener("keydown", this.onKey);
    cancelAnimationFrame(this.painting);
    clearInterval(this.turns);
    clearInterval(this.lists);
    clearTimeout(this.remembering);
    this.stopSession();
    this.sized.disconnect();
    this.picker.close();
    this.range.request?.abort();
    this.timeline.close();
    this.loader.close();
    this.stage.close();
  }
}
