// The views of the page by name, in the order of the navigation. `home` is the part of index.html that is there at first.
//
// A view's module exports `open(root, params)`, which fills `root` and returns { update?(state), close?() }: `update` is
// called with each new state of the pipeline, `close` when the user leaves the view. `params` are those after `?` in the
// address, as in #/events?source=gate.

import { t } from "../strings.js";

/** @typedef {{ status: any, sources: any[], stages: any[] }} State */
/** @typedef {{ update?: (state: State) => void, close?: () => void }} Opened */
/** @typedef {{ open: (root: HTMLElement, params: URLSearchParams) => Opened }} ViewModule */
/** @typedef {{ name: string, title: string, load: null | (() => Promise<ViewModule>) }} View */

/** @type {View[]} */
export const VIEWS = [
  { name: "live", title: t("live.title"), load: () => import("./live.js") },
  { name: "home", title: "Overview", load: null },
];
