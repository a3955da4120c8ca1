// The texts of the page, by key. Each topic has a file in strings/en/; a translation is a folder beside it.

import live from "./strings/en/live.js";

/** @type {Record<string, string>} */
const TEXTS = { ...live };

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
