// All sources as a table, with their form, and CSV for many at once.

import { call, path } from "../api.js";
import { stateWord } from "../condition.js";
import { Differences } from "../differences.js";
import { ago, arrange, make, number, say, text } from "../dom.js";
import { actionIcon } from "../icons.js";
import { modal } from "../modal.js";
import { askToken, lost, may, signedIn } from "../session.js";
import { SourceFilter } from "../source_filter.js";
import { openSource } from "../source_form.js";
import { t } from "../strings.js";
import { Selection } from "./source_selection.js";
import { importCsv } from "./source_csv.js";

const STEP = 60; // rows that are made at once; further ones when the user scrolls to them
const COLUMNS = ["select", "name", "state", "fps", "latency", "dropped", "reconnects", "address", "actions"];

/** @param {Record<string, number>} counts */
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
/** @param {Record<string, number>} counts */
const listed = (counts) => Object.entries(counts).map(([name, n]) => `${name.replaceAll("_", " ")}: ${number(n)}`).join(", ");

class Row {
  /**
   * @param {string} id
   * @param {Selection} selection
   */
  constructor(id, selection) {
    this.id = id;
    /** @type {any} */
    this.source = null;
    this.box = selection.box(id);
    /** @type {Record<string, HTMLElement>} */
    this.cells = {};
    for (const name of COLUMNS) this.cells[name] = make(name === "name" ? "th" : "td", { "data-label": name === "select" ? null : t(`sources.${name}`), class: name, scope: name === "name" ? "row" : null });
    this.badge = make("span", { class: "badge" });
    this.message = make("p", { class: "message" });
    this.error = make("p", { class: "error", role: "alert" });
    this.counts = make("p", { class: "counts" });
    this.cells.state.append(this.badge, this.message, this.counts, this.error);
    this.label = make("span");
    this.details = make("p", { class: "details" });
    this.cells.select.append(this.box);
    this.cells.name.append(this.label, this.details);
    this.pause = make("button", { type: "button", class: "icon-button", onclick: () => this.order() });
    this.cells.actions.append(make("div", { class: "do", "data-needs": "operator" }, this.pause,
      this.change = make("button", { type: "button", class: "icon-button", title: t("sources.change"), onclick: () => openSource(this.source) }, actionIcon("change")),
      this.remove = make("button", { type: "button", class: "icon-button", title: t("sources.remove"), onclick: () => remove(this.source) }, actionIcon("remove"))));
    this.element = make("tr", {}, ...Object.values(this.cells));
  }

  /** @param {any} source */
  update(source) {
    if (this.source === source) return;
    this.source = source;
    const name = source.name;
    text(this.label, name);
    this.label.title = source.id;
    text(this.details, [name === source.id ? "" : source.id, source.group, source.site, ...source.tags].filter(Boolean).join(" · "));
    this.box.setAttribute("aria-label", t("bulk.select", { name }));
    this.change.setAttribute("aria-label", t("sources.changeOf", { id: name }));
    this.remove.setAttribute("aria-label", t("sources.removeOf", { id: name }));
    text(this.badge, stateWord(source));
    this.badge.className = `badge ${source.state}`;
    this.badge.title = ago(source.since_s);
    text(this.message, source.state === "running" ? "" : source.message);
    text(this.counts, listed(source.counts));
    text(this.cells.fps, source.fps.toFixed(1));
    text(this.cells.latency, source.latency.p50_ms === undefined ? "–" : t("sources.ms", { n: Math.round(source.latency.p50_ms) }));
    text(this.cells.dropped, number(sum(source.dropped)));
    this.cells.dropped.title = listed(source.dropped);
    text(this.cells.reconnects, number(sum(source.reconnects)));
    this.cells.reconnects.title = listed(source.reconnects);
    text(this.cells.address, source.address || source.kind);
    const paused = source.state === "paused";
    this.pause.replaceChildren(actionIcon(paused ? "resume" : "pause"));
    this.pause.title = t(paused ? "sources.resume" : "sources.pause");
    this.pause.setAttribute("aria-label", t(paused ? "sources.resumeOf" : "sources.pauseOf", { id: name }));
    this.pause.disabled = source.state === "ended" || source.state === "failed";
  }

  async order() {
    if (!signedIn) return askToken();
    text(this.error, "");
    try {
      this.update(await call("POST", path(this.id, this.source.state === "paused" ? "/resume" : "/pause")));
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) lost();
      text(this.error, trouble.message);
    }
  }
}

/** @param {import("../types").SourceView} source */
function remove({ id, name }) {
  if (!signedIn) return askToken();
  modal({
    title: t("sources.removeSure", { id: name }), body: [make("p", {}, t("sources.removeWhat"))], danger: true,
    save: t("sources.remove"), cancel: t("sources.cancel"),
    async submit() {
      await call("DELETE", path(id));
      say(t("sources.removed", { id: name }));
    },
  });
}

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 * @returns {import("./index.js").Opened}
 */
export function open(root, params) {
  const view = new SourcesView(root, params);
  return { update: (state) => view.update(state), close: () => view.close() };
}

class SourcesView {
  /**
   * @param {HTMLElement} root
   * @param {URLSearchParams} params
   */
  constructor(root, params) {
    /** @type {Map<string, Row>} */
    this.rows = new Map();
    /** @type {import("../types").SourceView[]} */
    this.sources = [];
    this.shown = STEP; // how many rows there are at most
    this.filter = new SourceFilter("sources", () => {
      this.shown = STEP;
      this.show();
    }, {});
    this.filter.read(params);
    this.selection = new Selection();
    this.differences = new Differences();
    this.body = make("tbody");
    this.count = make("span", { class: "count" });
    this.none = make("p", { class: "empty", hidden: true });
    this.tail = make("p", { class: "tail" });
    this.table = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "sources-title" },
      make("table", { class: "list sources" }, make("thead", {}, make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col", class: name },
        name === "select" ? this.selection.all : t(`sources.${name}`))))), this.body));
    const operator = (/** @type {() => void} */ work) => () => { if (signedIn && may("operator")) work(); else askToken(); };
    root.append(make("section", {}, this.differences.element,
      make("div", { class: "title" }, make("h2", { id: "sources-title" }, `${t("sources.title")} `, this.count),
        make("div", { class: "tools", "data-needs": "operator" },
          make("a", { class: "button", href: "/api/v1/sources.csv", download: "sources.csv", "data-signed-in": true }, t("sources.export")),
          make("button", { type: "button", onclick: operator(importCsv) }, t("sources.import")),
          make("button", { type: "button", class: "primary", onclick: () => openSource(null) }, t("sources.add")))),
      this.filter.element, this.selection.element, this.table, this.tail, this.none));
    this.sight = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting) || this.shown >= this.matching) return;
      this.shown += STEP;
      this.show();
    }, { rootMargin: "800px" });
    this.sight.observe(this.tail);
    this.matching = 0;
  }

  /** @param {import("./index.js").State} state */
  update({ status, sources }) {
    this.differences.update(status);
    this.sources = sources;
    this.show();
  }

  show() {
    const { sources, rows, body } = this, matching = this.filter.apply(sources), shown = matching.slice(0, this.shown);
    this.matching = matching.length;
    this.selection.update(sources, matching);
    const ids = new Set(shown.map(({ id }) => id));
    for (const [id, row] of rows) {
      if (ids.has(id)) continue;
      row.element.remove();
      rows.delete(id);
    }
    const elements = shown.map((source) => {
      let row = rows.get(source.id);
      if (!row) rows.set(source.id, row = new Row(source.id, this.selection));
      row.update(source);
      return row.element;
    });
    arrange(body, elements);
    this.filter.element.hidden = sources.length === 0;
    this.table.hidden = shown.length === 0;
    this.none.hidden = shown.length > 0;
    text(this.none, t(sources.length ? "filter.none" : "sources.none"));
    text(this.count, sources.length ? String(sources.length) : "");
  }

  close() {
    this.sight.disconnect();
  }
}
