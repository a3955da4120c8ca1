// Tables of records.

import { make } from "../dom.js";
import { t } from "../strings.js";

/** @param {number} time_s since 1970 */
export const when = (time_s) => make("time", { datetime: new Date(time_s * 1000).toISOString() }, new Date(time_s * 1000).toLocaleString());

/**
 * A table whose columns have texts of a topic.
 * @param {string} topic
 * @param {string[]} names
 * @param {string} label
 */
export function listing(topic, names, label) {
  const body = make("tbody");
  const element = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label },
    make("table", { class: "list" }, make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, t(`${topic}.${name}`))))), body));
  /** @param {Record<string, Node | string>} cells */
  const row = (cells) => make("tr", {}, ...names.map((name) => make("td", { "data-label": t(`${topic}.${name}`), class: name }, cells[name] ?? "")));
  return { element, body, row };
}
