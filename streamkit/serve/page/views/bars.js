// A bar chart of one line or zone as SVG: one way above the axis, the other below, and a week earlier as an outline.

import { now_s } from "../clock.js";
import { make, number, svg, text } from "../dom.js";
import { has, t } from "../strings.js";
import { tick } from "./shared.js";

/** @typedef {import("../types").CountRow} CountRow */

const HIGH = 132, LEFT = 34, RIGHT = 4, TOP = 6, BOTTOM = 18, GAP = .22;
const UP = new Set(["in", "entered"]);

/** @type {Record<string, number>} */
const STEPS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

/** @param {CountRow} row */
const kindOf = ({ kind, label }) => [has(`counts.kind.${kind}`) ? t(`counts.kind.${kind}`) : kind, label].filter(Boolean).join(" ");

/** @param {number[]} values */
const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * How much more or less there was than a week earlier, such as +12 %, without a day or week that is not over.
 * @param {CountRow} row
 * @param {number[]} edges
 */
function totalOf(row, edges) {
  const begun = edges.slice(0, -1).filter((edge) => edge <= now_s()).length, short = edges[1] - edges[0] < 7200;
  const n = sum(row.values), over = short || edges[edges.length - 1] <= now_s() ? begun : begun - 1; // today is not over
  const complete = sum(row.values.slice(0, Math.max(0, over))), before = sum(row.before.slice(0, Math.max(0, over)));
  if (!before) return t("counts.total", { kind: kindOf(row), n: number(n) });
  const percent = Math.round((complete / before - 1) * 100);
  return t("counts.total.compared", { kind: kindOf(row), n: number(n), change: `${percent < 0 ? "−" : "+"}${Math.abs(percent)} %` });
}

export class Bars {
  /** @param {string} color as CSS */
  constructor(color) {
    this.title = make("h4");
    this.camera = make("span", { class: "faint" });
    this.totals = make("p", { class: "bars-totals" });
    this.area = make("div", { class: "bars-area", tabindex: 0, role: "img", onkeydown: (event) => this.key(event), onblur: () => this.leave(),
      onpointermove: (event) => this.point(event), onpointerleave: () => this.leave() });
    this.value = make("output", { class: "bars-value", "aria-live": "polite" });
    this.head = make("tr");
    this.body = make("tbody");
    this.table = make("details", { class: "bars-table", ontoggle: () => this.fillTable() }, make("summary", {}, t("counts.table")),
      make("div", { class: "bars-scroll", tabindex: 0, role: "region" }, make("table", {}, make("thead", {}, this.head), this.body)));
    this.element = make("section", { class: "bars" }, make("div", { class: "bars-title" }, this.title, this.camera), this.totals, this.area, this.value, this.table);
    this.element.style.setProperty("--own", color);
    /** @type {CountRow[]} */
    this.rows = [];
    /** @type {number[]} */
    this.edges = [];
    /** @type {number | null} */
    this.at = null;
    this.wide = 0;
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(this.area);
  }

  close() {
    this.size.disconnect();
  }

  /**
   * @param {CountRow[]} rows of one line or zone
   * @param {number[]} edges of the periods in seconds since 1970
   */
  show(rows, edges) {
    this.rows = rows;
    this.edges = edges;
    const { area, stage, name } = rows[0], totals = rows.map((row) => totalOf(row, edges)).join(" · ");
    const title = area === stage ? stage : `${stage}: ${area}`;
    text(this.title, title);
    text(this.camera, name);
    text(this.totals, totals);
    const words = t("counts.chart", { title: `${title}, ${name}`, totals });
    for (const element of [this.area, this.table.querySelector(".bars-scroll")]) element?.setAttribute("aria-label", words);
    this.element.setAttribute("aria-label", `${title}, ${name}`);
    this.draw();
    this.fillTable();
  }

  draw() {
    this.wide = this.area.clientWidth;
    if (!this.wide || !this.rows.length) return;
    const periods = this.edges.length - 1, width = (this.wide - LEFT - RIGHT) / periods;
    const [up, down] = [true, false].map((above) => this.rows.filter(({ kind }) => UP.has(kind) === above));
    const highest = (/** @type {CountRow[]} */ rows) => Math.max(0, ...Array.from({ length: periods }, (_, at) =>
      Math.max(sum(rows.map(({ values }) => values[at])), sum(rows.map(({ before }) => before[at] ?? 0)))));
    const above = highest(up), below = highest(down), whole = Math.max(1, above + below);
    const scale = (HIGH - TOP - BOTTOM) / whole, zero = TOP + above * scale;
    const drawing = svg("svg", { width: this.wide, height: HIGH, viewBox: `0 0 ${this.wide} ${HIGH}`, "aria-hidden": "true" });
    /** @type {(x: number, y: number, words: string, anchor: string) => void} */
    const label = (x, y, words, anchor) => {
      const element = svg("text", { x, y, "text-anchor": anchor });
      element.textContent = words;
      drawing.append(element);
    };
    for (const [rows, sign] of /** @type {[CountRow[], number][]} */ ([[up, -1], [down, 1]])) {
      for (let at = 0; at < periods; at += 1) {
        const x = LEFT + at * width + width * GAP / 2, wide = Math.max(1, width * (1 - GAP));
        const n = sum(rows.map(({ values }) => values[at])) * scale, before = sum(rows.map((row) => row.before[at] ?? 0)) * scale;
        if (n) drawing.append(svg("rect", { class: sign < 0 ? "bar" : "bar below", x, width: wide, y: sign < 0 ? zero - n : zero, height: n }));
        if (before) drawing.append(svg("rect", { class: "earlier", x, width: wide, y: sign < 0 ? zero - before : zero, height: before }));
      }
    }
    drawing.append(svg("line", { class: "axis", x1: LEFT, x2: this.wide - RIGHT, y1: zero, y2: zero }));
    if (above) label(LEFT - 4, TOP + 9, number(above), "end");
    if (below) label(LEFT - 4, HIGH - BOTTOM, number(below), "end");
    const every = Math.max(1, Math.ceil(periods / Math.max(2, Math.floor(this.wide / 64)))), span = this.edges[periods] - this.edges[0];
    for (let at = 0; at < periods; at += every) label(LEFT + (at + .5) * width, HIGH - 4, tick(this.edges[at], span), "middle");
    this.cursor = svg("rect", { class: "cursor", x: 0, width, y: TOP, height: HIGH - TOP - BOTTOM, visibility: "hidden" });
    drawing.append(this.cursor);
    this.area.replaceChildren(drawing);
    if (this.at !== null) this.mark(this.at);
  }

  /** @param {PointerEvent} event */
  point(event) {
    const x = event.clientX - this.area.getBoundingClientRect().left - LEFT, width = (this.wide - LEFT - RIGHT) / (this.edges.length - 1);
    this.mark(Math.max(0, Math.min(this.edges.length - 2, Math.floor(x / width))));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = STEPS[event.key], last = this.edges.length - 2;
    if (!by) return;
    event.preventDefault();
    this.mark(Math.max(0, Math.min(last, (this.at ?? (by < 0 ? last + 1 : -1)) + by)));
  }

  /** @param {number} at */
  mark(at) {
    if (at >= this.edges.length - 1) return this.leave();
    this.at = at;
    const width = (this.wide - LEFT - RIGHT) / (this.edges.length - 1);
    this.cursor?.setAttribute("x", String(LEFT + at * width));
    this.cursor?.setAttribute("visibility", "visible");
    text(this.value, t("counts.at", { time: this.time(at), values: this.rows.map((row) => this.word(row, at)).join(", ") }));
  }

  leave() {
    this.at = null;
    this.cursor?.setAttribute("visibility", "hidden");
    text(this.value, "");
  }

  /** @param {number} at */
  time(at) {
    const long = this.edges[1] - this.edges[0] > 7200;
    /** @type {Intl.DateTimeFormatOptions} */
    const form = long ? { weekday: "short", month: "short", day: "numeric" } : { weekday: "short", hour: "2-digit", minute: "2-digit" };
    return new Date(this.edges[at] * 1000).toLocaleString(undefined, form);
  }

  /**
   * @param {CountRow} row
   * @param {number} at
   */
  word(row, at) {
    const before = row.before.length ? ` (${t("counts.before", { n: number(row.before[at]) })})` : "";
    return `${kindOf(row)} ${number(row.values[at])}${before}`;
  }

  fillTable() {
    if (!this.table.open) return;
    const column = (/** @type {string} */ words) => make("th", { scope: "col" }, words);
    const compared = this.rows.some(({ before }) => before.length);
    this.head.replaceChildren(column(t("counts.table.time")), ...this.rows.flatMap((row) =>
      [column(kindOf(row)), ...(compared ? [column(t("counts.table.before", { kind: kindOf(row) }))] : [])]));
    this.body.replaceChildren(...this.edges.slice(0, -1).map((_, at) => make("tr", {}, make("th", { scope: "row" }, this.time(at)),
      ...this.rows.flatMap((row) => [make("td", {}, number(row.values[at])), ...(compared ? [make("td", {}, number(row.before[at] ?? 0))] : [])]))));
  }
}
