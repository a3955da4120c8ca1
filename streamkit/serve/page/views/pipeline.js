// The graph with live rates, the bottleneck, and for the chosen stage its counters and the settings that change live.

import { Trouble, call, get } from "../api.js";
import { control, shown } from "../controls.js";
import { make, number, say, svg, text, why } from "../dom.js";
import { draftOf, keepDraft } from "../drafts.js";
import { address } from "../router.js";
import { askToken, lost, signedIn, who } from "../session.js";
import { t } from "../strings.js";

/** @typedef {import("../types").StageView} StageView */
/** @typedef {import("./index.js").State & { stages: StageView[] }} State */
/** @typedef {{ stage: string, before: Record<string, any>, now: Record<string, any> }} Change */

const WIDE = 160, HIGH = 84, APART = 28, BESIDE = 14;
const ROOT = "decode";

/** @type {Change[]} */
const changes = []; // while the page is open, so that a value can be restored after a look at another view
/**
 * The forms with values that are not applied yet, by stage.
 * @returns {Map<string, Settings>}
 */
const editedForms = () => draftOf("pipeline", who.name) ?? new Map();

/**
 * The stages by their distance from the sources.
 * @param {StageView[]} stages
 */
function layers(stages) {
  const depth = new Map([[ROOT, 0]]);
  /** @type {string[][]} */
  const found = [[ROOT]];
  for (const stage of stages) {
    const at = 1 + Math.max(...stage.inputs.map((id) => depth.get(id) ?? 0));
    depth.set(stage.id, at);
    (found[at] ??= []).push(stage.id);
  }
  return found;
}

/** @param {number} share */
const percent = (share) => t("pipeline.percent", { n: Math.round(share * 100) });

/** @param {number | null} us */
const cost = (us) => (us === null ? "–" : t("pipeline.cost", { n: (us / 1000).toFixed(us < 10_000 ? 2 : 1) }));

class Graph {
  /** @param {(id: string) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.element = make("div", { class: "flow", tabindex: 0, role: "region", "aria-label": t("pipeline.graph") });
    /** @type {Map<string, { button: HTMLElement, rate: HTMLElement, load: HTMLElement, bar: HTMLElement }>} */
    this.nodes = new Map();
    this.shape = "";
    this.fresh = false; // whether it was just drawn
    this.narrow = matchMedia("(max-width: 44rem)");
  }

  /** @param {StageView[]} stages */
  draw(stages) {
    const shape = JSON.stringify([this.narrow.matches, stages.map((one) => [one.id, one.inputs, one.where])]);
    if (shape === this.shape) return;
    this.shape = shape;
    const down = this.narrow.matches, rows = layers(stages);
    const across = Math.max(...rows.map((row) => row.length));
    const [alongStep, besideStep] = down ? [HIGH + APART, WIDE + BESIDE] : [WIDE + APART, HIGH + BESIDE];
    const along = rows.length * alongStep - APART, beside = across * besideStep - BESIDE;
    const [width, height] = down ? [beside, along] : [along, beside];
    /** @type {Map<string, [number, number]>} */
    const places = new Map();
    rows.forEach((row, step) => row.forEach((id, place) => {
      const first = (beside - (row.length * besideStep - BESIDE)) / 2 + place * besideStep;
      places.set(id, down ? [first, step * alongStep] : [step * alongStep, first]);
    }));
    const lines = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const stage of stages) {
      for (const input of stage.inputs) {
        const [x0, y0] = places.get(input) ?? [0, 0], [x1, y1] = places.get(stage.id) ?? [0, 0];
        const [a, b, c, d] = down ? [x0 + WIDE / 2, y0 + HIGH, x1 + WIDE / 2, y1] : [x0 + WIDE, y0 + HIGH / 2, x1, y1 + HIGH / 2];
        const bend = down ? `${a} ${(b + d) / 2} ${c} ${(b + d) / 2}` : `${(a + c) / 2} ${b} ${(a + c) / 2} ${d}`;
        lines.append(svg("path", { d: `M${a} ${b} C${bend} ${c} ${d}` }));
      }
    }
    const canvas = make("div", { class: "canvas" }, lines);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    this.nodes.clear();
    for (const id of rows.flat()) {
      const stage = stages.find((one) => one.id === id);
      const rate = make("span", { class: "rate" }), load = make("span", { class: "load" }), bar = make("span", { class: "bar" });
      const button = make("button", { type: "button", class: `node ${stage?.kind ?? "source"}`, "data-stage": id,
        onclick: () => this.choose(id), title: [id, ...(stage?.crossings ?? [])].join("\n") },
        make("strong", {}, stage ? id : t("pipeline.sources")), rate, load, bar);
      const [x, y] = places.get(id) ?? [0, 0];
      button.style.left = `${x}px`;
      button.style.top = `${y}px`;
      this.nodes.set(id, { button, rate, load, bar });
      canvas.append(button);
    }
    this.element.replaceChildren(canvas);
    this.fresh = true;
  }

  /**
   * @param {State} state
   * @param {string} chosen
   */
  update({ status, sources, stages }, chosen) {
    this.draw(stages);
    for (const [id, { button, rate, load, bar }] of this.nodes) {
      const stage = stages.find((one) => one.id === id);
      const busy = stage?.busy ?? 0, hot = status.bottleneck.stage === id;
      const fps = stage?.fps ?? sources.reduce((sum, one) => sum + one.fps, 0);
      text(rate, t("pipeline.fps", { n: fps.toFixed(1) }));
      const words = stage ? [stage.failed ? t("pipeline.failed", { n: number(stage.failed) }) : "",
        stage.queue ? t("pipeline.queued", { n: stage.queue }) : "", t("pipeline.busy", { share: percent(busy) })]
        : [t("pipeline.running", { n: sources.filter((one) => one.state === "running").length, all: sources.length })];
      text(load, words.filter(Boolean).join(" · "));
      bar.style.width = `${Math.round(busy * 100)}%`;
      button.classList.toggle("hot", hot);
      button.classList.toggle("bad", Boolean(stage?.failed));
      button.setAttribute("aria-pressed", String(id === chosen));
      if (this.fresh && id === chosen) this.element.scrollLeft = button.offsetLeft + WIDE / 2 - this.element.clientWidth / 2;
    }
    this.fresh = false;
  }
}

class Settings {
  /** @param {StageView} stage */
  constructor(stage) {
    this.stage = stage.id;
    this.controls = stage.settings.map((one) => control(one, `set-${stage.id}-${one.name}`));
    /** @type {Record<string, string>} */
    this.known = Object.fromEntries(stage.settings.map((one) => [one.name, JSON.stringify(one.value)]));
    this.values = Object.fromEntries(stage.settings.map((one) => [one.name, one.value]));
    this.error = make("p", { class: "error", role: "alert" });
    this.history = make("ul", { class: "setting-history", "aria-label": t("pipeline.changes") });
    this.element = make("form", { "aria-label": t("pipeline.settingsOf", { id: stage.id }), novalidate: true,
      oninput: () => this.keep(), onclick: () => this.keep(), // a click adds or removes a row
      onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); this.save(); } },
      make("div", { class: "fields" }, ...this.controls.map((one) => one.element)), this.error,
      make("div", { class: "buttons" }, make("button", { type: "submit", class: "primary", "data-needs": "operator" }, t("pipeline.apply"))), this.history);
    this.list();
  }

  /** @param {StageView} stage */
  update(stage) { // what another client has changed is shown, unless the user is changing it here
    for (const setting of stage.settings) {
      const now = JSON.stringify(setting.value), one = this.controls.find(({ name }) => name === setting.name);
      if (!one || now === this.known[setting.name]) continue;
      if (!this.touched(one)) one.write(setting.value);
      this.known[setting.name] = now;
      this.values[setting.name] = setting.value;
    }
  }

  /** @param {import("../controls.js").Control} control */
  touched(control) {
    try {
      return JSON.stringify(control.read()) !== this.known[control.name];
    } catch {
      return true;
    }
  }

  // The stage was removed.
  discard() {
    this.controls = [];
    this.keep();
  }

  // Keeps the form while it has values that are not applied yet.
  keep() {
    const forms = editedForms();
    if (this.controls.some((control) => this.touched(control))) forms.set(this.stage, this);
    else forms.delete(this.stage);
    keepDraft("pipeline", who.name, forms.size ? forms : null);
  }

  async save() {
    text(this.error, "");
    try {
      const changed = this.controls.filter((one) => this.touched(one)).map((one) => [one.name, one.read()]);
      if (changed.length) await this.send(Object.fromEntries(changed));
      else say(t("pipeline.nothing"));
    } catch (trouble) {
      text(this.error, why(trouble));
    }
  }

  /**
   * @param {Record<string, any>} values
   * @param {Change} [undone] the change that this restores
   */
  async send(values, undone) {
    if (!signedIn) return askToken();
    const before = Object.fromEntries(Object.keys(values).map((name) => [name, this.values[name]]));
    try {
      this.update(await call("PATCH", `/api/v1/stages/${encodeURIComponent(this.stage)}`, values));
    } catch (trouble) {
      if (trouble instanceof Trouble && trouble.status === 401) lost();
      throw trouble;
    }
    if (undone) {
      changes.splice(changes.indexOf(undone), 1);
      for (const one of this.controls) if (one.name in values) one.write(this.values[one.name]);
    } else {
      changes.push({ stage: this.stage, before, now: values });
    }
    this.keep();
    this.list();
    say(t(undone ? "pipeline.restored" : "pipeline.changed", { id: this.stage }));
  }

  list() {
    this.history.replaceChildren(...changes.filter((one) => one.stage === this.stage).reverse().map((one) => make("li", {},
      make("span", {}, Object.keys(one.now).map((name) => t("pipeline.fromTo", { name, before: shown(one.before[name]), now: shown(one.now[name]) })).join("; ")),
      make("button", { type: "button", class: "small", "data-needs": "operator", onclick: () => this.send(one.before, one).catch((trouble) => text(this.error, why(trouble))) },
        t("pipeline.restore")))));
    this.history.hidden = !this.history.children.length;
  }
}

class Details {
  constructor() {
    this.title = make("h3", { id: "stage-title", tabindex: -1 });
    this.about = make("p", { class: "faint" });
    this.figures = make("dl", { class: "facts" });
    this.form = make("div");
    this.element = make("section", { class: "stage-panel", "aria-labelledby": "stage-title" }, this.title, this.about, this.figures, this.form);
    /** @type {Settings | null} */
    this.settings = null;
  }

  /**
   * @param {State} state
   * @param {string} id
   */
  update({ status, sources, stages }, id) {
    const stage = stages.find((one) => one.id === id);
    text(this.title, stage ? stage.id : t("pipeline.sources"));
    text(this.about, stage ? t("pipeline.about", { type: stage.type, kind: stage.kind, where: stage.where }) : t("pipeline.aboutSources"));
    this.facts(stage ? this.ofStage(stage) : sources.map((one) => [one.id, t("pipeline.fps", { n: one.fps.toFixed(1) })]));
    if (!stage) {
      this.settings = null;
      this.form.replaceChildren();
    } else if (this.settings?.stage !== stage.id) {
      this.settings = stage.settings.length ? editedForms().get(stage.id) ?? new Settings(stage) : null;
      this.settings?.update(stage);
      this.form.replaceChildren(make("h4", {}, t("pipeline.settings")), this.settings?.element ?? make("p", { class: "faint" }, t("pipeline.noSettings")));
    } else {
      this.settings.update(stage);
    }
    this.element.classList.toggle("hot", status.bottleneck.stage === id);
  }

  /** @param {StageView} stage @returns {string[][]} */
  ofStage(stage) {
    return [
      [t("pipeline.rate"), t("pipeline.fps", { n: stage.fps.toFixed(1) })],
      [t("pipeline.costOf"), cost(stage.us_per_frame)],
      [t("pipeline.busyTime"), percent(stage.busy)],
      [t("pipeline.queue"), t("pipeline.batches", { n: stage.queue })],
      [t("pipeline.frames"), number(stage.frames)],
      [t("pipeline.failures"), number(stage.failed)],
      [t("pipeline.reads"), stage.inputs.map((id) => (id === ROOT ? t("pipeline.sources") : id)).join(", ")],
      [t("pipeline.adds"), stage.adds.join(", ") || "–"],
      ...stage.crossings.map((one) => [t("pipeline.crossing"), one]),
    ];
  }

  /** @param {string[][]} pairs */
  facts(pairs) {
    while (this.figures.children.length > pairs.length) this.figures.lastChild?.remove();
    while (this.figures.children.length < pairs.length) this.figures.append(make("div", {}, make("dt"), make("dd")));
    pairs.forEach(([name, value], place) => {
      const [term, given] = this.figures.children[place].children;
      text(term, name);
      text(given, value);
    });
  }
}

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  let chosen = params.get("stage") ?? "";
  /** @type {State | null} */
  let last = null;
  const limit = make("p", { class: "bottleneck" });
  const details = new Details();
  const graph = new Graph((id) => {
    chosen = id;
    history.replaceState(null, "", address("pipeline", { stage: id }));
    if (last) show(last);
    details.title.focus({ preventScroll: false });
  });
  root.append(make("div", { class: "title" }, make("h2", {}, t("pipeline.title"))), limit, graph.element, details.element);
  /** @param {State} state */
  const show = (state) => {
    last = state;
    const known = state.stages.some((one) => one.id === chosen) || chosen === ROOT;
    if (!known) chosen = state.status.bottleneck.stage ?? state.stages.find((one) => one.settings.length)?.id ?? ROOT;
    text(limit, state.status.bottleneck.text ? t("pipeline.limit", { text: state.status.bottleneck.text }) : t("pipeline.measuring"));
    limit.classList.toggle("hot", state.status.bottleneck.stage !== null);
    graph.update(state, chosen);
    details.update(state, chosen);
    for (const [id, form] of editedForms()) if (!state.stages.some((stage) => stage.id === id)) form.discard();
  };
  const turned = () => { if (last) show(last); };
  graph.narrow.addEventListener("change", turned);
  let closed = false;
  return {
    /** @param {import("./index.js").State} state */
    async update(state) {
      try {
        const stages = await get("/api/v1/stages");
        if (!closed) show({ ...state, stages });
      } catch { // the page itself reports that the server does not answer, and asks again
      }
    },
    close() {
      closed = true;
      graph.narrow.removeEventListener("change", turned);
    },
  };
}
