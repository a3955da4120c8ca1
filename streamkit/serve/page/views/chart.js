// A line chart as SVG: axes, a legend, the values under the pointer or the arrow keys, and the same values as a table.

import { make, svg, text } from "../dom.js";
import { t } from "../strings.js";
import { moment, tick, timeTicks } from "./shared.js";

/** @typedef {{ name: string, color: string, dash: number, values: [number, number][] }} Line `color` is one of CSS, `dash` a number from 0 */

const HIGH = 190, LEFT = 52, RIGHT = 10, TOP = 10, BOTTOM = 24, MAX_ROWS = 400;

const DASHES = ["", "7 3", "2 3", "9 3 2 3", "5 5", "12 4"]; // the first is a solid line

/** @type {Record<string, number>} */
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

const rounded = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 4 });

/**
 * The numbers of an axis that begins at zero: 1, 2 or 5 times a power of ten apart.
 * @param {number} largest
 * @param {number} count
 */
export function valueTicks(largest, count = 4) {
  const end = largest > 0 ? largest : 1, raw = end / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw * 0.999) ?? raw;
  return Array.from({ length: Math.ceil(end / step - 1e-9) + 1 }, (_, place) => place * step);
}

/**
 * Gives an element of the drawing the color and the dashes of a line.
 * @param {SVGElement} element
 * @param {Line} line
 */
function styled(element, { color, dash }) {
  element.style.setProperty("--own", color);
  const dashes = DASHES[dash % DASHES.length];
  if (dashes) element.setAttribute("stroke-dasharray", dashes);
  return element;
}

export class Chart {
  /**
   * @param {string} title
   * @param {boolean} optional hidden without values
   */
  constructor(title, optional) {
    this.optional = optional;
    this.title = make("h3", {}, title);
    this.legend = make("ul", { class: "legend" });
    this.area = make("div", { class: "chart-area", tabindex: 0, role: "img", "aria-label": title,
      onpointermove: (event) => this.point(event.clientX), onpointerleave: () => this.leave(), onblur: () => this.leave(),
      onkeydown: (event) => this.key(event) });
    this.told = make("output", { class: "chart-told", "aria-live": "polite" });
    this.rows = make("tbody");
    this.head = make("tr");
    this.table = make("details", { class: "chart-table", ontoggle: () => this.fillTable() }, make("summary", {}, t("charts.table")),
      make("div", { class: "chart-scroll", tabindex: 0, role: "region", "aria-label": title }, make("table", {}, make("thead", {}, this.head), this.rows)));
    this.empty = make("p", { class: "empty" }, t("charts.none"));
    this.element = make("section", { class: "chart", "aria-label": title, onfocusout: (event) => this.hideEmpty(event.relatedTarget) }, this.title, this.legend, make("div", { class: "chart-box" }, this.area, this.told), this.empty, this.table);
    /** @type {Line[]} */
    this.lines = [];
    /** @type {Map<number, number>[]} */
    this.maps = []; // the values of each line by time
    /** @type {number[]} */
    this.times = [];
    /** @type {number | null} */
    this.at = null;
    this.period = { from_s: 0, to_s: 0, step_s: 0 };
    this.wide = 0;
    this.most = 0; // of the axis
    /** @type {SVGElement | null} */
    this.cursor = null;
    this.size = new ResizeObserver(() => this.draw());
    this.size.observe(this.area);
    this.hideEmpty(null);
  }

  close() {
    this.size.disconnect();
  }

  /**
   * @param {string} title
   * @param {Line[]} lines
   * @param {{ from_s: number, to_s: number, step_s: number }} period
   */
  show(title, lines, period) {
    text(this.title, title);
    this.lines = lines;
    this.period = period;
    this.times = [...new Set(lines.flatMap((one) => one.values.map(([at]) => at)))].sort((a, b) => a - b);
    this.maps = lines.map((one) => new Map(one.values));
    this.hideEmpty(document.activeElement);
    this.legend.replaceChildren(...lines.map((line) => make("li", {},
      svg("svg", { viewBox: "0 0 24 10", "aria-hidden": "true" }, styled(svg("path", { class: "line", d: "M0 5H24" }), line)), line.name)));
    this.area.setAttribute("aria-label", t("charts.help", { title, lines: lines.map((one) => one.name).join(", ") }));
    this.draw();
    this.fillTable();
  }

  /**
   * Hides what has no values. What has the focus stays until it loses it, or the user would start again at the top.
   * @param {Element | null} focused
   */
  hideEmpty(focused) {
    const none = this.times.length === 0, hidden = none && !this.element.contains(focused);
    this.empty.hidden = !none;
    this.area.hidden = this.table.hidden = hidden;
    this.element.hidden = hidden && this.optional;
  }

  /** @param {number} at */
  x(at) {
    return LEFT + ((at - this.period.from_s) / (this.period.to_s - this.period.from_s)) * (this.wide - LEFT - RIGHT);
  }

  /** @param {number} value */
  y(value) {
    return HIGH - BOTTOM - (value / this.most) * (HIGH - TOP - BOTTOM);
  }

  draw() {
    this.wide = this.area.clientWidth;
    if (!this.times.length) {
      this.area.replaceChildren();
      text(this.told, "");
    }
    if (!this.wide || !this.times.length) return;
    const { from_s, to_s, step_s } = this.period, span = to_s - from_s;
    let highest = 0; // without spreading: hundreds of cameras have more values than a call takes arguments
    for (const { values } of this.lines) for (const [, value] of values) highest = Math.max(highest, value);
    const ticks = valueTicks(highest);
    this.most = ticks[ticks.length - 1];
    const drawing = svg("svg", { width: this.wide, height: HIGH, viewBox: `0 0 ${this.wide} ${HIGH}`, "aria-hidden": "true" });
    /** @type {(x: number, y: number, words: string, anchor: string) => void} */
    const label = (x, y, words, anchor) => {
      const made = svg("text", { x, y, "text-anchor": anchor });
      made.textContent = words;
      drawing.append(made);
    };
    for (const value of ticks) {
      drawing.append(svg("line", { class: "grid", x1: LEFT, x2: this.wide - RIGHT, y1: this.y(value), y2: this.y(value) }));
      label(LEFT - 7, this.y(value) + 4, rounded.format(value), "end");
    }
    for (const at of timeTicks(from_s, to_s, Math.max(2, Math.floor(this.wide / 90)))) {
      drawing.append(svg("line", { class: "grid", x1: this.x(at), x2: this.x(at), y1: HIGH - BOTTOM, y2: HIGH - BOTTOM + 4 }));
      if (this.x(at) < this.wide - 18) label(this.x(at), HIGH - 6, tick(at, span), "middle");
    }
    this.lines.forEach((one, place) => {
      let path = "", before = -Infinity;
      for (const [at, value] of one.values) {
        path += `${at - before > step_s * 1.5 ? "M" : "L"}${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`;
        before = at;
      }
      drawing.append(styled(svg("path", { class: "line", d: path }), one));
      for (const [at, value] of one.values) { // a value without neighbors is a dot
        if (!this.maps[place].has(at - step_s) && !this.maps[place].has(at + step_s)) {
          drawing.append(styled(svg("circle", { cx: this.x(at), cy: this.y(value), r: 2.5 }), one));
        }
      }
    });
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HIGH - BOTTOM, x1: 0, x2: 0, visibility: "hidden" });
    drawing.append(this.cursor);
    this.area.replaceChildren(drawing);
    if (this.at !== null) this.mark(this.at);
  }

  /** @param {number} clientX */
  point(clientX) {
    if (!this.times.length) return;
    const x = clientX - this.area.getBoundingClientRect().left;
    let near = 0;
    this.times.forEach((at, place) => {
      if (Math.abs(this.x(at) - x) < Math.abs(this.x(this.times[near]) - x)) near = place;
    });
    this.mark(this.times[near]);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const by = STEPS[event.key];
    if (!by || !this.times.length) return;
    event.preventDefault();
    const place = this.at === null ? this.times.length - (by < 0 ? 0 : 1) : this.times.indexOf(this.at);
    this.mark(this.times[Math.max(0, Math.min(this.times.length - 1, place + by))]);
  }

  /** @param {number} at */
  mark(at) {
    this.at = at;
    const x = this.x(at);
    for (const end of ["x1", "x2"]) this.cursor?.setAttribute(end, String(x));
    this.cursor?.setAttribute("visibility", "visible");
    const words = this.lines.map((one, place) => `${one.name} ${this.word(place, at)}`);
    text(this.told, `${moment(at)}: ${words.join(", ")}`);
    this.told.classList.toggle("left", x > this.wide / 2);
  }

  leave() {
    this.at = null;
    this.cursor?.setAttribute("visibility", "hidden");
    text(this.told, "");
  }

  /**
   * @param {number} place
   * @param {number} at
   */
  word(place, at) {
    const value = this.maps[place].get(at);
    return value === undefined ? t("charts.unknown") : rounded.format(value);
  }

  fillTable() {
    if (!this.table.open) return;
    this.head.replaceChildren(make("th", { scope: "col" }, t("charts.table.time")), ...this.lines.map((one) => make("th", { scope: "col" }, one.name)));
    this.rows.replaceChildren(...this.times.slice(-MAX_ROWS).reverse().map((at) => make("tr", { "data-at": at }, make("th", { scope: "row" }, moment(at)),
      ...this.lines.map((_, place) => make("td", {}, this.word(place, at))))));
  }
}
