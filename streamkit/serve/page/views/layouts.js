// Saved layouts and tours of the live view: the choice of one, and the tour that runs. They are kept on the server.

import { call, get } from "../api.js";
import { make, say, text } from "../dom.js";
import { onSession, signedIn } from "../session.js";
import { t } from "../strings.js";
import { editLayouts } from "./layout_editor.js";

/** @typedef {import("../types").Layouts} Layouts */
/** @typedef {import("../types").Layout} Layout */
/** @typedef {import("../types").Tour} Tour */

export class LayoutBar {
  /**
   * @param {() => void} changed called when another layout is to be shown
   * @param {() => string[]} shown the ids of the cameras that the view shows
   */
  constructor(changed, shown) {
    this.changed = changed;
    this.shown = shown;
    /** @type {Layouts} */
    this.saved = { layouts: [], tours: [] };
    this.loaded = false;
    this.closed = false;
    this.name = ""; // of the layout that is chosen
    this.tourName = "";
    this.place = 0; // in the tour
    this.left_s = 0;
    /** @type {HTMLSelectElement} */
    this.select = make("select", { class: "layout-choice", "aria-label": t("layouts.choose"), onchange: () => this.choose(this.select.value) });
    this.edit = make("button", { type: "button", onclick: () => this.open() }, t("layouts.edit"));
    this.tourState = make("span", { class: "tour-state" });
    this.stopButton = make("button", { type: "button", onclick: () => this.choose("") }, t("layouts.stop"));
    this.touring = make("span", { class: "touring", hidden: true }, this.tourState, this.stopButton);
    this.missing = make("span", { class: "missing", role: "status" });
    this.element = make("div", { class: "group layouts", hidden: true }, this.select, this.edit, this.touring, this.missing);
    this.timer = setInterval(() => this.tick(), 1000);
    this.unlisten = onSession(() => this.load());
    this.load();
  }

  /** @param {URLSearchParams} params of the address */
  read(params) {
    this.name = params.get("layout") ?? "";
    this.tourName = params.get("tour") ?? "";
  }

  /** What is chosen, for an address. @returns {Record<string, string>} */
  get params() {
    /** @type {Record<string, string>} */
    const params = {};
    if (this.tourName) params.tour = this.tourName;
    else if (this.name) params.layout = this.name;
    return params;
  }

  async load() {
    this.element.hidden = !signedIn;
    if (!signedIn) return;
    try {
      this.saved = await get("/api/v1/layouts");
    } catch { // the page says that the server is away
      return;
    }
    if (this.closed) return;
    this.loaded = true;
    this.start();
    this.offer();
    if (this.layout) this.changed(); // else the page of the grid stays as it was
  }

  /** The layout to show; null for all cameras. @returns {Layout | null} */
  get layout() {
    const stop = this.tour?.stops[this.place];
    const name = stop ? stop.layout : this.name;
    return this.saved.layouts.find((layout) => layout.name === name) ?? null;
  }

  /** @returns {Tour | null} */
  get tour() {
    return this.saved.tours.find((tour) => tour.name === this.tourName) ?? null;
  }

  /** @param {string} value of the select */
  choose(value) {
    this.name = value.startsWith("layout:") ? value.slice(7) : "";
    this.tourName = value.startsWith("tour:") ? value.slice(5) : "";
    this.start();
    this.offer();
    this.changed();
  }

  start() {
    this.place = 0;
    this.left_s = this.tour?.stops[0]?.seconds ?? 0;
    const isGone = this.loaded && ((this.name && !this.layout) || (this.tourName && !this.tour));
    text(this.missing, isGone ? t("layouts.gone") : "");
    this.showTour();
  }

  tick() {
    const { tour } = this;
    if (!tour || document.hidden || document.querySelector("dialog[open]")) return;
    this.left_s -= 1;
    if (this.left_s <= 0) {
      this.place = (this.place + 1) % tour.stops.length;
      this.left_s = tour.stops[this.place].seconds;
      this.changed();
    }
    this.showTour();
  }

  showTour() {
    this.touring.hidden = !this.tour;
    if (this.tour) text(this.tourState, t("layouts.touring", { layout: this.tour.stops[this.place].layout, n: Math.ceil(this.left_s) }));
  }

  offer() {
    const option = (/** @type {string} */ kind, /** @type {string} */ name) => make("option", { value: `${kind}:${name}` }, name);
    const group = (/** @type {string} */ label, /** @type {HTMLElement[]} */ options) => (options.length ? [make("optgroup", { label }, ...options)] : []);
    this.select.replaceChildren(make("option", { value: "" }, t("layouts.all")),
      ...group(t("layouts.saved"), this.saved.layouts.map(({ name }) => option("layout", name))),
      ...group(t("layouts.tours"), this.saved.tours.map(({ name }) => option("tour", name))));
    this.select.value = this.tour ? `tour:${this.tourName}` : this.layout ? `layout:${this.name}` : "";
    this.select.hidden = this.saved.layouts.length === 0;
  }

  open() {
    editLayouts(this.saved, this.shown(), async (saved) => {
      this.saved = await call("PUT", "/api/v1/layouts", saved);
      say(t("layouts.saved.all"));
      if (!this.layout) this.name = ""; // it was renamed or removed
      if (!this.tour) this.tourName = "";
      this.start();
      this.offer();
      this.changed();
    });
  }

  /**
   * The cameras of a layout, in its order; says how many are not there.
   * @param {Layout} layout
   * @param {import("../types").SourceView[]} sources all of them
   */
  members(layout, sources) {
    const byId = new Map(sources.map((source) => [source.id, source]));
    const members = layout.sources.flatMap((id) => byId.get(id) ?? []);
    const absent = layout.sources.length - members.length;
    text(this.missing, absent ? t("layouts.missing", { n: absent }) : "");
    return members;
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
    this.unlisten();
  }
}
