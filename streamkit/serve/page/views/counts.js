// The view `counts`: how many crossed lines and entered zones by hour, day or week, who is in the zones now, and heat maps.

import { call, get } from "../api.js";
import { now_s } from "../clock.js";
import { colorOf } from "../colors.js";
import { make, number, say, text, why } from "../dom.js";
import { address } from "../router.js";
import { askToken, signedIn } from "../session.js";
import { t } from "../strings.js";
import { Bars } from "./bars.js";
import { moment } from "./shared.js";

/** @typedef {import("../types").CountRow} CountRow */
/** @typedef {import("../types").CountsView} CountsView */
/** @typedef {import("../types").HeatMapView} HeatMapView */
/** @typedef {import("../types").OccupancyView} OccupancyView */

const EVERY_MS = 10000;
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/**
 * The start of a day by the local clock, in seconds since 1970.
 * @param {number} days before today
 */
function midnight(days) {
  const day = new Date(now_s() * 1000);
  day.setHours(0, 0, 0, 0);
  day.setDate(day.getDate() - days);
  return day.getTime() / 1000;
}

/** @type {Record<string, () => { step: string, from: number, to: number }>} */
const PERIODS = {
  today: () => ({ step: "hour", from: midnight(0), to: midnight(-1) }),
  yesterday: () => ({ step: "hour", from: midnight(1), to: midnight(0) }),
  week: () => ({ step: "day", from: midnight(6), to: midnight(-1) }),
  month: () => ({ step: "day", from: midnight(29), to: midnight(-1) }),
  quarter: () => ({ step: "week", from: midnight(12 * 7), to: midnight(-1) }),
};

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  let closed = false, turn = 0, listed = "";
  let chosen = params.get("source") ?? "", span = (params.get("period") ?? "") in PERIODS ? String(params.get("period")) : "today";
  /** @type {Map<string, Bars>} */
  const charts = new Map();
  const period = make("select", { id: "counts-period", onchange: () => { span = period.value; change(); } },
    ...Object.keys(PERIODS).map((name) => make("option", { value: name }, t(`counts.period.${name}`))));
  const camera = make("select", { id: "counts-camera", onchange: () => { chosen = camera.value; change(); } });
  const compare = make("input", { type: "checkbox", id: "counts-compare", checked: params.has("compare"), onchange: () => change() });
  const byLabel = make("input", { type: "checkbox", id: "counts-label", checked: params.has("label"), onchange: () => change() });
  const csv = make("a", { class: "counts-csv", download: "counts.csv" }, t("counts.csv"));
  const problem = make("p", { class: "error", role: "alert" }), none = make("p", { class: "empty", hidden: true }, t("counts.none"));
  const tiles = make("ul", { class: "counts-now" }), flow = make("div", { class: "counts-grid" }), heat = make("div", { class: "counts-heat" });
  const now = make("section", { "aria-labelledby": "counts-now-title", hidden: true }, make("h3", { id: "counts-now-title" }, t("counts.now")), tiles);
  const maps = make("section", { "aria-labelledby": "counts-heat-title", hidden: true }, make("h3", { id: "counts-heat-title" }, t("counts.heat")), heat);
  period.value = span;

  function query() {
    const { step, from, to } = PERIODS[span]();
    return new URLSearchParams({ step, from: String(from), to: String(to), zone: ZONE,
      ...(chosen ? { source: chosen } : {}), ...(byLabel.checked ? { by_label: "true" } : {}) });
  }

  function change() {
    history.replaceState(null, "", address("counts", { ...(span === "today" ? {} : { period: span }), ...(chosen ? { source: chosen } : {}),
      ...(compare.checked ? { compare: 1 } : {}), ...(byLabel.checked ? { label: 1 } : {}) }));
    load();
  }

  async function load() {
    const thisTurn = turn += 1, wanted = query();
    csv.href = `/api/v1/counts.csv?${wanted}`;
    if (compare.checked) wanted.set("compare", "true");
    try {
      const [counts, zones, images] = await Promise.all([get(`/api/v1/counts?${wanted}`),
        get(`/api/v1/occupancy?zone=${encodeURIComponent(ZONE)}`), get("/api/v1/heatmaps")]);
      if (closed || thisTurn !== turn) return;
      text(problem, "");
      showFlow(counts);
      showZones(zones);
      showHeat(images);
    } catch (/** @type {any} */ trouble) {
      if (!closed && thisTurn === turn && !trouble.away) text(problem, why(trouble));
    }
  }

  /** @param {CountsView} counts */
  function showFlow({ rows, edges }) {
    /** @type {Map<string, CountRow[]>} */
    const areas = new Map();
    for (const row of rows) {
      const key = JSON.stringify([row.source, row.stage, row.area]);
      areas.set(key, [...(areas.get(key) ?? []), row]);
    }
    for (const [key, chart] of charts) {
      if (areas.has(key)) continue;
      chart.close();
      chart.element.remove();
      charts.delete(key);
    }
    for (const [key, areaRows] of areas) {
      let chart = charts.get(key);
      if (!chart) {
        chart = new Bars(colorOf(areaRows[0].source));
        charts.set(key, chart);
        flow.append(chart.element);
      }
      chart.show(areaRows, edges);
    }
    none.hidden = rows.length > 0;
  }

  /** @param {OccupancyView[]} zones */
  function showZones(zones) {
    const shown = zones.filter(({ source }) => !chosen || source === chosen);
    now.hidden = shown.length === 0;
    tiles.replaceChildren(...shown.map(({ area, name, count, peak_today }) => make("li", {}, make("span", { class: "counts-area" }, area),
      make("span", { class: "faint" }, name), make("strong", { title: count === null ? t("counts.now.unknown") : null }, count === null ? "–" : number(count)),
      make("span", { class: "faint" }, t("counts.now.peak", { n: number(peak_today) })))));
  }

  /** @param {HeatMapView[]} images */
  function showHeat(images) {
    const shown = signedIn ? images.filter(({ source }) => !chosen || source === chosen) : [];
    maps.hidden = shown.length === 0;
    const key = JSON.stringify(shown);
    if (heat.dataset.key === key) return;
    heat.dataset.key = key;
    heat.replaceChildren(...shown.map(heatMap));
  }

  /** @param {HeatMapView} view */
  function heatMap({ source, name, stage, time_s }) {
    /** @type {HTMLImageElement} */
    const image = make("img", { loading: "lazy", alt: t("counts.heat.alt", { camera: name }), width: 640, height: 360,
      src: `/api/v1/heatmaps/${encodeURIComponent(stage)}/image?${new URLSearchParams({ source, at: String(time_s) })}`,
      onerror: () => image.replaceWith(make("p", { class: "empty" }, t("counts.heat.none"))) });
    return make("figure", {}, image, make("figcaption", {}, t("counts.heat.of", { camera: name, time: moment(time_s) }),
      make("button", { type: "button", class: "small", "data-needs": "operator", onclick: () => redraw(stage) }, t("counts.heat.write"))));
  }

  /** @param {string} stage */
  async function redraw(stage) {
    if (!signedIn) return askToken();
    try {
      await call("PATCH", `/api/v1/stages/${encodeURIComponent(stage)}`, { trigger: Math.floor(now_s()) });
      say(t("counts.heat.written"));
      setTimeout(load, 1500);
    } catch (trouble) {
      text(problem, why(trouble));
    }
  }

  /** @param {import("../types").SourceView[]} sources */
  function listCameras(sources) {
    const key = JSON.stringify(sources.map(({ id, name }) => [id, name]));
    if (key === listed) return;
    listed = key;
    camera.replaceChildren(make("option", { value: "" }, t("counts.every")), ...sources.map(({ id, name }) => make("option", { value: id }, name)));
    if (chosen && !sources.some(({ id }) => id === chosen)) camera.append(make("option", { value: chosen }, chosen));
    camera.value = chosen;
  }

  /** @param {HTMLInputElement} input @param {string} words */
  const check = (input, words) => make("div", { class: "check" }, input, make("label", { for: input.id }, words));
  root.append(make("div", { class: "counts-view" }, make("div", { class: "title" }, make("h2", {}, t("counts.title")), csv), problem,
    make("div", { class: "counts-choices" }, make("div", {}, make("label", { for: "counts-period" }, t("counts.period")), period),
      make("div", {}, make("label", { for: "counts-camera" }, t("counts.camera")), camera),
      check(compare, t("counts.compare")), check(byLabel, t("counts.byLabel")), make("p", { class: "faint" }, t("counts.zone", { zone: ZONE }))),
    now, make("section", { "aria-labelledby": "counts-flow-title" }, make("h3", { id: "counts-flow-title" }, t("counts.flow")), none, flow), maps));
  listCameras([]);
  load();
  const timer = setInterval(() => document.hidden || load(), EVERY_MS);
  return {
    /** @param {import("./index.js").State} state */
    update(state) {
      listCameras(state.sources);
    },
    close() {
      closed = true;
      clearInterval(timer);
      for (const chart of charts.values()) chart.close();
    },
  };
}
