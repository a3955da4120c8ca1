// The audit log with its filters.

import { get } from "../api.js";
import { make, text } from "../dom.js";
import { t } from "../strings.js";
import { listing, when } from "./listing.js";

const TOPICS = ["sources", "stages", "session", "sessions", "people", "tokens", "config", "zones"];
const PAGE = 50;

export function auditLog() {
  const { element, body, row } = listing("audit", ["time", "who", "address", "action", "target", "detail", "outcome"], t("audit.title"));
  const input = (/** @type {string} */ id, /** @type {string} */ type) => /** @type {HTMLInputElement} */ (make("input", { id: `audit-${id}`, type, autocomplete: "off" }));
  const select = (/** @type {string} */ id, /** @type {[string, string][]} */ offered) => /** @type {HTMLSelectElement} */ (make("select", { id: `audit-${id}` },
    make("option", { value: "" }, t("audit.all")), ...offered.map(([value, label]) => make("option", { value }, label))));
  const who = input("who", "text"), words = input("text", "text"), since = input("since", "date"), until = input("until", "date");
  const topic = select("topic", TOPICS.map((one) => [one, one])), outcome = select("outcome", [["false", t("audit.done")], ["true", t("audit.rejected")]]);
  const none = make("p", { class: "empty", hidden: true }, t("audit.none"));
  const error = make("p", { class: "error", role: "alert" });
  const more = make("button", { type: "button", hidden: true, onclick: () => load(oldest) }, t("audit.more"));
  let oldest = 0, newest = -1, paged = false;
  /** @type {Record<string, string>} what the shown entries were filtered by */
  let used = {};

  function filters() {
    /** @type {Record<string, string>} */
    const found = { who: who.value.trim(), action: topic.value, text: words.value.trim(), failed: outcome.value };
    if (since.value) found.since_s = String(new Date(`${since.value}T00:00`).getTime() / 1000);
    if (until.value) found.until_s = String(new Date(`${until.value}T00:00`).getTime() / 1000 + 86400);
    return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== ""));
  }

  /** @param {any} one */
  const line = (one) => {
    const made = row({
      time: when(one.time_s), who: !one.who ? t("audit.stranger") : one.who === one.role ? one.who : `${one.who} (${t(`role.${one.role}`)})`, address: one.address, action: one.action,
      target: one.target, detail: Object.entries(one.detail).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", "),
      outcome: one.outcome,
    });
    made.className = one.status >= 400 ? "rejected" : "";
    return made;
  };

  /** @param {number} [before] */
  async function load(before) {
    text(error, "");
    try {
      const query = { ...used, limit: String(PAGE), ...(before === undefined ? {} : { before: String(before) }) };
      const found = await get(`/api/v1/audit?${new URLSearchParams(query)}`);
      if (before === undefined) {
        if ((found[0]?.number ?? 0) === newest) return;
        newest = found[0]?.number ?? 0;
        body.replaceChildren();
      } else paged = true;
      body.append(...found.map(line));
      oldest = found[found.length - 1]?.number ?? oldest;
      more.hidden = found.length < PAGE;
      none.hidden = body.children.length > 0;
      element.hidden = !none.hidden;
    } catch (/** @type {any} */ trouble) {
      text(error, trouble.message);
    }
  }

  const search = (/** @type {Event} */ event) => {
    event.preventDefault();
    used = filters();
    newest = -1;
    paged = false;
    return load();
  };
  const field = (/** @type {string} */ label, /** @type {HTMLElement} */ control) => make("div", {}, make("label", { for: control.id }, t(`audit.${label}`)), control);
  const section = make("section", { "aria-labelledby": "audit-title" },
    make("div", { class: "title" }, make("h2", { id: "audit-title" }, t("audit.title"))),
    make("p", { class: "help" }, t("audit.about")),
    make("form", { class: "filters", onsubmit: search, "aria-label": t("audit.title") },
      field("who", who), field("topic", topic), field("text", words), field("outcomes", outcome), field("since", since), field("until", until),
      make("button", { type: "submit" }, t("audit.show"))),
    error, element, none, more);
  return { section, show: async () => { if (!paged) await load(); } };
}
