// The views of the page by name, in the order of the navigation; a phone shows the first four in its bar. `home` is the part of index.html that is there at first.
//
// The style sheet of a view is views/NAME.css, each of whose rules begins with main[data-view="NAME"]; it is loaded before
// the view is shown. Styles that several views share are in style.css.
//
// A view's module exports `open(root, params)`, which fills `root` and returns { update?(state), close?(), everyMs? }:
// `update` is called with each new state of the pipeline, `close` when the user leaves the view; `everyMs` is how often it
// needs the state, unless once a second. `params` are those after `?` in the address, as in #/events?source=gate.

import { addViews } from "../router.js";
import { t } from "../strings.js";

/** @typedef {{ status: import("../types").Status, sources: import("../types").SourceView[] }} State */
/** @typedef {{ update?: (state: State) => void, close?: () => void, everyMs?: number }} Opened */
/** @typedef {{ open: (root: HTMLElement, params: URLSearchParams) => Opened }} ViewModule */
/** @typedef {{ name: string, title: string, load: null | (() => Promise<ViewModule>) }} View */

/** @type {View[]} */
export const VIEWS = [
  { name: "live", title: t("live.title"), load: () => import("./live.js") },
  { name: "home", title: t("home.title"), load: null },
  { name: "review", title: t("review.title"), load: () => import("./review.js") },
  { name: "alarms", title: t("alarms.title"), load: () => import("./alarms.js") },
  { name: "events", title: t("events.title"), load: () => import("./events.js") },
  { name: "recordings", title: t("recordings.title"), load: () => import("./recordings.js") },
  { name: "charts", title: t("charts.title"), load: () => import("./charts.js") },
  { name: "counts", title: t("counts.title"), load: () => import("./counts.js") },
  { name: "sources", title: t("sources.title"), load: () => import("./sources.js") },
  { name: "zones", title: t("zones.title"), load: () => import("./zones.js") },
  { name: "pipeline", title: t("pipeline.title"), load: () => import("./pipeline.js") },
  { name: "config", title: t("config.title"), load: () => import("./config.js") },
  { name: "logs", title: t("logs.title"), load: () => import("./logs.js") },
  { name: "access", title: t("access.title"), load: () => import("./access.js") },
];

addViews(VIEWS);
