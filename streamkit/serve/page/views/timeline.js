// Events over time: a row of bars for each camera. A click on a bar, or Enter on it, shows the events of its time.

import { make, svg, text } from "../dom.js";
import { nameOf } from "../names.js";
import { t } from "../strings.js";
import { moment, tick, timeTicks } from "./shared.js";

const HIGH = 34;
const MOST = 8; // rows at first: those of the cameras with most events
const STEP = 40; // further rows that a button shows
/** How many rows a box has. @type {WeakMap<HTMLElement, number>} */
const rowsOf = new WeakMap();
/** @type {Record<string, number>} */
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };

/** @typedef {(from: number, to: number, source: string) => void} Choose receives the times in seconds since 1970 */

/**
 * @param {HTMLElement} box
 * @param {import("../types").Timeline} timeline
 * @param {Choose} choose
 */
export function drawTimeline(box, timeline, choose) {
  const before = box.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement).dataset : null;
  const largest = timeline.sources.reduce((most, { counts }) => Math.max(most, ...counts), 1);
  const most = rowsOf.get(box) ?? MOST, shown = busiest(timeline.sources, most);
  const rows = shown.map((events) => row(events, timeline, largest, choose, events.source === before?.source ? Number(before.at) : null));
  const span = timeline.to_s - timeline.from_s;
  const axis = make("div", { class: "timeline-axis", "aria-hidden": "true" }, make("div", { class: "ticks" },
    ...timeTicks(timeline.from_s, timeline.to_s, innerWidth < 600 ? 4 : 8).map((at) => {
      const mark = make("span", {}, tick(at, span));
      mark.style.left = `${((at - timeline.from_s) / span) * 100}%`;
      return mark;
    })));
  const left = timeline.sources.length - shown.length;
  const again = (/** @type {number} */ count) => () => {
    rowsOf.set(box, count);
    drawTimeline(box, timeline, choose);
  };
  const more = left > 0 ? [make("button", { type: "button", class: "small", onclick: again(most + STEP) }, t("timeline.more", { n: left }))] : [];
  const fewer = most > MOST ? [make("button", { type: "button", class: "small", onclick: again(MOST) }, t("timeline.fewer"))] : [];
  box.replaceChildren(...rows, ...(rows.length ? [axis] : []), ...more, ...fewer);
  box.hidden = rows.length === 0;
  if (before) /** @type {HTMLElement | null} */ (box.querySelector(`[data-source="${CSS.escape(before.source ?? "")}"]`))?.focus({ preventScroll: true });
}

/**
 * The sources with most events, in their order.
 * @param {import("../types").SourceTimeline[]} sources
 * @param {number} most
 */
function busiest(sources, most) {
  if (sources.length <= most) return sources;
  const total = (/** @type {import("../types").SourceTimeline} */ { counts }) => counts.reduce((a, b) => a + b, 0);
  const totals = new Map(sources.map((events) => [events, total(events)]));
  const chosen = new Set([...sources].sort((a, b) => (totals.get(b) ?? 0) - (totals.get(a) ?? 0)).slice(0, most));
  return sources.filter((events) => chosen.has(events));
}

/**
 * @param {import("../types").SourceTimeline} events
 * @param {import("../types").Timeline} timeline
 * @param {number} largest
 * @param {Choose} choose
 * @param {number | null} before the time that the bar of the row's earlier drawing showed
 */
function row({ source, counts }, timeline, largest, choose, before) {
  const drawing = svg("svg", { viewBox: `0 0 ${counts.length} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  counts.forEach((n, place) => {
    if (!n) return;
    const high = Math.max(3, (n / largest) * (HIGH - 2));
    drawing.append(svg("rect", { x: place + 0.08, y: HIGH - high, width: 0.84, height: high }));
  });
  const cursor = svg("rect", { class: "cursor", x: 0, y: 0, width: 1, height: HIGH, visibility: "hidden" });
  drawing.append(cursor);
  const output = make("output", { class: "timeline-told" });
  let at = before === null ? /** @type {any} */ (counts).findLastIndex((/** @type {number} */ n) => n > 0) : Math.round((before - timeline.from_s) / timeline.bin_s);
  const from = (/** @type {number} */ place) => timeline.from_s + place * timeline.bin_s;
  const point = (/** @type {number} */ place) => {
    at = Math.max(0, Math.min(counts.length - 1, place));
    cursor.setAttribute("x", String(at));
    cursor.setAttribute("visibility", "visible");
    const count = counts[at] === 1 ? t("events.count.one") : t("events.count.many", { count: counts[at] });
    const words = t("events.timeline.bin", { from: moment(from(at)), to: moment(from(at + 1)), count });
    text(output, words);
    bars.dataset.at = String(from(at));
    bars.setAttribute("aria-valuenow", String(at));
    bars.setAttribute("aria-valuetext", words);
  };
  const leave = () => {
    cursor.setAttribute("visibility", "hidden");
    text(output, "");
  };
  const place = (/** @type {MouseEvent} */ event) => {
    const area = bars.getBoundingClientRect();
    return Math.floor(((event.clientX - area.left) / area.width) * counts.length);
  };
  const pick = () => choose(from(at), from(at + 1), source);
  const total = counts.reduce((a, b) => a + b, 0);
  /** @type {HTMLElement} */
  const bars = make("div", { class: "bars", role: "slider", tabindex: 0, "data-source": source, "aria-label": t("events.timeline.row", { source: nameOf(source), total }),
    "aria-valuemin": 0, "aria-valuemax": counts.length - 1, "aria-valuenow": at,
    onpointermove: (event) => point(place(event)), onpointerleave: leave, onblur: leave, onfocus: () => point(at),
    onclick: (event) => { point(place(event)); pick(); },
    onkeydown: (event) => {
      const by = STEPS[event.key];
      if (by) point(at + by);
      else if (event.key === "Home") point(0);
      else if (event.key === "End") point(counts.length - 1);
      else if (event.key === "Enter" || event.key === " ") pick();
      else return;
      event.preventDefault();
    } }, drawing);
  return make("div", { class: "timeline-row" }, make("span", { class: "timeline-name", title: source }, nameOf(source)), bars, output);
}
