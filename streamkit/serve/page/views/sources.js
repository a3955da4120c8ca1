// All sources as a table, with their form, and CSV for many at once.

import { call, path } from "../api.js";
import { Differences } from "../differences.js";
import { ago, make, number, say, text } from "../dom.js";
import { modal } from "../modal.js";
import { askToken, lost, may, signedIn } from "../session.js";
import { openSource } from "../source_form.js";
import { t } from "../strings.js";
import { importCsv } from "./source_csv.js";

const COLUMNS = ["name", "state", "fps", "latency", "dropped", "reconnects", "address", "actions"];

/** @param {Record<string, number>} counts */
const sum = (counts) => Object.values(counts).reduce((a, b) => a + b, 0);
/** @param {Record<string, number>} counts */
const listed = (counts) => Object.entries(counts).map(([name, n]) => `${name.replaceAll("_", " ")}: ${number(n)}`).join(", ");

class Row {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {any} */
    this.source = null;
    /** @type {Record<string, HTMLElement>} */
    this.cells = {};
    for (const name of COLUMNS) this.cells[name] = make(name === "name" ? "th" : "td", { "data-label": t(`sources.${name}`), class: name, scope: name === "name" ? "row" : null });
    this.badge = make("span", { class: "badge" });
    this.message = make("p", { class: "message" });
    this.error = make("p", { class: "error", role: "alert" });
    this.counts = make("p", { class: "counts" });
    this.cells.state.append(this.badge, this.message, this.counts, this.error);
    this.cells.name.append(id);
    this.pause = /** @type {HTMLButtonElement} */ (make("button", { type: "button", onclick: () => this.order() }));
    this.cells.actions.append(make("div", { class: "do", "data-needs": "operator" }, this.pause,
      make("button", { type: "button", "aria-label": t("sources.changeOf", { id }), onclick: () => openSource(this.source) }, t("sources.change")),
      make("button", { type: "button", "aria-label": t("sources.removeOf", { id }), onclick: () => remove(id) }, t("sources.remove"))));
    this.element = make("tr", {}, ...Object.values(this.cells));
  }

  /** @param {any} source */
  update(source) {
    this.source = source;
    const cause = source.cause ? `: ${source.cause.replaceAll("_", " ")}` : "";
    text(this.badge, `${source.state}${cause}`);
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
    text(this.pause, t(paused ? "sources.resume" : "sources.pause"));
    this.pause.setAttribute("aria-label", t(paused ? "sources.resumeOf" : "sources.pauseOf", { id: this.id }));
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

/** @param {string} id */
function remove(id) {
  if (!signedIn) return askToken();
  modal({
    title: t("sources.removeSure", { id }), body: [make("p", {}, t("sources.removeWhat"))], danger: true,
    save: t("sources.remove"), cancel: t("sources.cancel"),
    async submit() {
      await call("DELETE", path(id));
      say(t("sources.removed", { id }));
    },
  });
}

/**
 * @param {HTMLElement} root
 * @returns {import("./index.js").Opened}
 */
export function open(root) {
  /** @type {Map<string, Row>} */
  const rows = new Map();
  const body = make("tbody");
  const count = make("span", { class: "count" });
  const none = make("p", { class: "empty", hidden: true }, t("sources.none"));
  const table = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-labelledby": "sources-title" },
    make("table", { class: "list sources" },
      make("thead", {}, make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col", class: name }, t(`sources.${name}`))))), body));
  const operator = (/** @type {() => void} */ work) => () => { if (signedIn && may("operator")) work(); else askToken(); };
  const differences = new Differences();
  root.append(make("section", {}, differences.element,
    make("div", { class: "title" }, make("h2", { id: "sources-title" }, `${t("sources.title")} `, count),
      make("div", { class: "tools", "data-needs": "operator" },
        make("a", { class: "button", href: "/api/v1/sources.csv", download: "sources.csv", "data-signed-in": true }, t("sources.export")),
        make("button", { type: "button", onclick: operator(importCsv) }, t("sources.import")),
        make("button", { type: "button", class: "primary", onclick: () => openSource(null) }, t("sources.add")))),
    table, none));
  return {
    update({ status, sources }) {
      differences.update(status);
      const known = new Set(sources.map((one) => one.id));
      for (const [id, row] of rows) {
        if (known.has(id)) continue;
        row.element.remove();
        rows.delete(id);
      }
      sources.forEach((source, place) => {
        let row = rows.get(source.id);
        if (!row) rows.set(source.id, row = new Row(source.id));
        row.update(source);
        if (body.children[place] !== row.element) body.insertBefore(row.element, body.children[place] ?? null);
      });
      table.hidden = sources.length === 0;
      none.hidden = sources.length > 0;
      text(count, sources.length ? String(sources.length) : "");
    },
  };
}
