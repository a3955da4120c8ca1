// The view `charts`: values of the last hour, day or month, of each camera, of all together, and of the pipeline.

import { get } from "../api.js";
import { now_s } from "../clock.js";
import { colorOf, colorOfSlot } from "../colors.js";
import { make, text } from "../dom.js";
import { nameOf } from "../names.js";
import { address } from "../router.js";
import { t } from "../strings.js";
import { Chart } from "./chart.js";

const NAMES = ["frames", "dropped", "latency", "counts", "gpu", "decoder", "disk", "spool"];
const WHOLE = new Set(["gpu", "decoder", "disk", "spool"]); // not of a camera
const OPTIONAL = new Set(["gpu", "decoder", "spool", "counts"]); // hidden without values
/** @type {Record<string, number>} */
const PERIODS = { hour: 3600, day: 86400, month: 30 * 86400 };
const EVERY_MS = 10000;
const TOGETHER = " together";

/** @typedef {import("../types").SeriesView} SeriesView */
/** @typedef {import("../types").SeriesValues} SeriesValues */
/** @typedef {import("./chart.js").Line} Line */

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  let closed = false, turn = 0;
  const wanted = params.get("period") ?? "";
  let chosen = params.get("source") ?? "", span = wanted in PERIODS ? wanted : "hour";
  const charts = new Map(NAMES.map((name) => [name, new Chart(t(`charts.name.${name}`), OPTIONAL.has(name))]));
  const period = make("select", { id: "charts-period", onchange: () => { span = period.value; change(); } },
    ...Object.keys(PERIODS).map((name) => make("option", { value: name }, t(`charts.period.${name}`))));
  const cameras = make("select", { id: "charts-cameras", onchange: () => { chosen = cameras.value; change(); } });
  const problem = make("p", { class: "problem", role: "alert", hidden: true });
  period.value = span;
  /** @type {string | null} */
  let known = null;

  /** @param {string[]} sources */
  function listCameras(sources) {
    const ids = [...new Set([...sources, ...(chosen && chosen !== TOGETHER ? [chosen] : [])])];
    if (JSON.stringify(ids) === known) return;
    known = JSON.stringify(ids);
    cameras.replaceChildren(make("option", { value: "" }, t("charts.each")), make("option", { value: TOGETHER }, t("charts.together")),
      ...ids.map((id) => make("option", { value: id }, nameOf(id))));
    cameras.value = chosen;
  }

  function change() {
    history.replaceState(null, "", address("charts", { ...(chosen ? { source: chosen } : {}), ...(span === "hour" ? {} : { period: span }) }));
    load();
  }

  async function load() {
    const thisTurn = turn += 1, to = Math.floor(now_s()), from = to - PERIODS[span];
    for (const name of NAMES) {
      const query = new URLSearchParams({ name, from: String(from), to: String(to), ...(chosen && chosen !== TOGETHER && !WHOLE.has(name) ? { source: chosen } : {}) });
      try {
        const found = await get(`/api/v1/series?${query}`);
        if (closed || thisTurn !== turn) return;
        show(/** @type {Chart} */ (charts.get(name)), name, found);
      } catch (/** @type {any} */ trouble) {
        if (!closed && !trouble.away) text(problem, trouble.message);
      }
    }
    try {
      const about = await get("/api/v1/events/store");
      text(problem, about.problem);
    } catch { /* the page says that the server is away */ }
    problem.hidden = !problem.textContent;
  }

  /**
   * @param {Chart} chart
   * @param {string} name
   * @param {SeriesView} found
   */
  function show(chart, name, found) {
    const whole = (/** @type {number} */ at) => at + found.step_s <= found.to_s; // the current step is not complete
    const labels = [...new Set(found.series.map(({ label }) => label))].sort();
    let lines = found.series.map((series, place) => ({ name: lineName(name, series), dash: WHOLE.has(name) ? 0 : labels.indexOf(series.label),
      color: WHOLE.has(name) ? colorOfSlot(place) : colorOf(series.source), values: filled(found, series.values.filter(([at]) => whole(at))) }))
      .filter(({ values }) => values.length);
    if (chosen === TOGETHER && !WHOLE.has(name)) lines = together(name, lines);
    const step = found.step_s < 60 ? t("charts.step.seconds", { n: found.step_s }) : t("charts.step.minutes", { n: found.step_s / 60 });
    const title = t(found.sums ? "charts.unit.sum" : "charts.unit", { name: t(`charts.name.${name}`), unit: found.unit, step });
    chart.show(title, lines, found);
  }

  /**
   * @param {string} name
   * @param {SeriesValues} one
   */
  function lineName(name, one) {
    if (WHOLE.has(name)) return one.label || t("charts.pipeline");
    return chosen && chosen !== TOGETHER ? one.label || nameOf(one.source) : [one.source && nameOf(one.source), one.label].filter(Boolean).join(" ");
  }

  root.append(make("div", { class: "charts-view" },
    make("div", { class: "title" }, make("h2", {}, t("charts.title"))), problem,
    make("div", { class: "charts-choices" },
      make("div", {}, make("label", { for: "charts-period" }, t("charts.period")), period),
      make("div", {}, make("label", { for: "charts-cameras" }, t("charts.cameras")), cameras)),
    make("div", { class: "charts-grid" }, ...[...charts.values()].map((one) => one.element))));
  listCameras([]);
  load();
  const timer = setInterval(() => document.hidden || load(), EVERY_MS);
  return {
    /** @param {import("./index.js").State} state */
    update(state) {
      listCameras(state.sources.map(({ id }) => id));
    },
    close() {
      closed = true;
      clearInterval(timer);
      for (const one of charts.values()) one.close();
    },
  };
}

/**
 * Numbers of things: a step without a value had none.
 * @param {{ sums: boolean, step_s: number, to_s: number }} found
 * @param {[number, number][]} values
 * @returns {[number, number][]}
 */
export function filled(found, values) {
  if (!found.sums || !values.length) return values;
  /** @type {[number, number][]} */
  const made = [];
  const known = new Map(values);
  for (let at = values[0][0]; at + found.step_s <= found.to_s; at += found.step_s) made.push([at, known.get(at) ?? 0]);
  return made;
}

/**
 * One line for all cameras: the sum, or the highest latency.
 * @param {string} name
 * @param {Line[]} lines
 * @returns {Line[]}
 */
function together(name, lines) {
  const sums = new Map();
  for (const [at, value] of lines.flatMap((one) => one.values)) {
    const before = sums.get(at);
    sums.set(at, before === undefined ? value : name === "latency" ? Math.max(before, value) : before + value);
  }
  return sums.size ? [{ name: t("charts.whole"), color: colorOfSlot(0), dash: 0, values: [...sums].sort((a, b) => a[0] - b[0]) }] : [];
}
