// The messages of the run: filtered by level and text, and followed as they come.

import { Trouble, get } from "../api.js";
import { make, number, text, why } from "../dom.js";
import { askToken, lost, onSession, signedIn } from "../session.js";
import { t } from "../strings.js";

/** @typedef {import("../types").LogMessage} LogMessage */

const KEPT = 2000;
const LEVELS = ["info", "warning", "error"];

/** @param {HTMLElement} root */
export function open(root) {
  /** @type {LogMessage[]} */
  let messages = [];
  /** @type {EventSource | null} */
  let stream = null;
  const level = make("select", { id: "log-level", onchange: () => show() }, ...LEVELS.map((one) => make("option", { value: one }, t(`logs.${one}`))));
  const words = make("input", { id: "log-words", type: "search", autocomplete: "off", oninput: () => show() });
  /** @type {HTMLInputElement} */
  const follow = make("input", { id: "log-follow", type: "checkbox", checked: true, onchange: () => (follow.checked ? start() : stop()) });
  const count = make("p", { class: "faint", role: "status" }), error = make("p", { class: "error", role: "alert" });
  const list = make("ol", { class: "log", tabindex: 0, "aria-label": t("logs.title") });
  const enter = make("p", { class: "empty" }, make("button", { type: "button", class: "primary", onclick: askToken }, t("logs.signIn")));
  root.append(make("div", { class: "title" }, make("h2", {}, t("logs.title"))),
    make("form", { class: "log-filter", role: "search", "aria-label": t("logs.filter"), onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
      make("div", {}, make("label", { for: "log-level" }, t("logs.level")), level),
      make("div", { class: "wide" }, make("label", { for: "log-words" }, t("logs.words")), words),
      make("div", { class: "check" }, follow, make("label", { for: "log-follow" }, t("logs.follow")))),
    count, error, enter, list);

  /** @param {LogMessage} one */
  function row(one) {
    const when = new Date(one.time_s * 1000);
    return make("li", { class: one.level }, make("time", { datetime: when.toISOString(), title: when.toLocaleString() }, when.toLocaleTimeString()),
      make("span", { class: "level" }, LEVELS.includes(one.level) ? t(`logs.${one.level}`) : one.level), make("code", {}, one.place.replaceAll(".", ".\u200b")), make("span", { class: "words" }, one.text));
  }

  /** @param {LogMessage} one */
  function wanted(one) {
    const least = LEVELS.indexOf(level.value), found = LEVELS.indexOf(one.level), sought = words.value.trim().toLowerCase();
    return (found < 0 || found >= least) && (!sought || `${one.place} ${one.text}`.toLowerCase().includes(sought));
  }

  function tell() {
    text(count, list.children.length ? t("logs.count", { shown: number(list.children.length), all: number(messages.length) }) : t("logs.none"));
  }

  function show() {
    list.replaceChildren(...messages.filter(wanted).map(row));
    list.scrollTop = list.scrollHeight;
    tell();
  }

  /** @param {LogMessage[]} more */
  function add(more) {
    const newest = messages.at(-1)?.number ?? 0, atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    const fresh = more.filter((one) => one.number > newest);
    if (!fresh.length) return;
    messages = [...messages, ...fresh].slice(-KEPT);
    list.append(...fresh.filter(wanted).map(row));
    while (list.children.length > KEPT) list.firstChild?.remove();
    if (atEnd) list.scrollTop = list.scrollHeight; // who reads further up is not moved
    tell();
  }

  function start() {
    stop();
    if (!signedIn || !follow.checked) return;
    stream = new EventSource(`/api/v1/logs/stream?after=${messages.at(-1)?.number ?? 0}`);
    stream.onmessage = (event) => add([JSON.parse(event.data)]);
  }

  function stop() {
    stream?.close();
    stream = null;
  }

  async function begin() {
    stop();
    messages = [];
    enter.hidden = signedIn;
    list.hidden = count.hidden = !signedIn;
    text(error, "");
    if (!signedIn) return show();
    try {
      messages = await get("/api/v1/logs");
      show();
      start();
    } catch (trouble) {
      if (trouble instanceof Trouble && trouble.status === 401) lost();
      text(error, why(trouble));
    }
  }

  const leave = onSession(begin);
  begin();
  return { close() { leave(); stop(); } };
}
