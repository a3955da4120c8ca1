// The texts of the page, by key. Each topic has a file in strings/en/; a translation is a folder beside it.

import access from "./strings/en/access.js";
import alarms from "./strings/en/alarms.js";
import charts from "./strings/en/charts.js";
import common from "./strings/en/common.js";
import config from "./strings/en/config.js";
import controls from "./strings/en/controls.js";
import counts from "./strings/en/counts.js";
import events from "./strings/en/events.js";
import live from "./strings/en/live.js";
import logs from "./strings/en/logs.js";
import pipeline from "./strings/en/pipeline.js";
import review from "./strings/en/review.js";
import sources from "./strings/en/sources.js";
import zones from "./strings/en/zones.js";

/** @type {Record<string, string>} */
const TEXTS = {
  ...access, ...alarms, ...charts, ...common, ...config, ...controls, ...counts, ...events, ...live, ...logs, ...pipeline, ...review,
  ...sources,
  ...zones,
};

/**
 * The text of a key, with `{name}` replaced by values.
 * @param {string} key
 * @param {Record<string, string | number>} [values]
 * @returns {string}
 */
export function t(key, values = {}) {
  const found = TEXTS[key];
  if (found === undefined) throw new Error(`no text "${key}"`);
  return found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/**
 * Whether a key has a text.
 * @param {string} key
 */
export const has = (key) => key in TEXTS;

/**
 * The nodes of a text; what stands between backticks becomes code.
 * @param {string} words
 * @returns {(string | HTMLElement)[]}
 */
export function rich(words) {
  return words.split("`").map((part, place) => {
    if (place % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

/**
 * Sets the texts of elements with `data-t` and their attributes with `data-t-NAME`, such as `data-t-label` (aria-label).
 * @param {ParentNode} root
 */
export function fill(root) {
  /** @type {Record<string, string>} */
  const attributes = { tLabel: "aria-label", tPlaceholder: "placeholder" };
  for (const element of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-t], [data-t-label], [data-t-placeholder]"))) {
    const { t: key, ...others } = element.dataset;
    if (key) element.replaceChildren(...rich(t(key)));
    for (const [name, attribute] of Object.entries(attributes)) {
      const other = others[name];
      if (other) element.setAttribute(attribute, t(other));
    }
  }
}
