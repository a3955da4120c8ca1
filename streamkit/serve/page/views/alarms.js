// What is wrong now, the alarms that are raised, their history, and their rules in words.

import { Trouble, call, get } from "../api.js";
import { ago, make, say, text, why } from "../dom.js";
import { askToken, lost, signedIn } from "../session.js";
import { t } from "../strings.js";

/** @typedef {import("../types").AlarmView} AlarmView */
/** @typedef {import("../types").AlarmChange} AlarmChange */
/** @typedef {import("../types").PipelineProblem} PipelineProblem */

const EVERY_MS = 2000;

/**
 * Shows elements of a list, each built once for its key and then updated.
 * @template T
 * @param {HTMLElement} list
 * @param {T[]} items
 * @param {(item: T) => string} key
 * @param {(item: T) => HTMLElement} build
 * @param {(element: HTMLElement, item: T) => void} [renew]
 */
function keep(list, items, key, build, renew) {
  const known = new Map([.../** @type {Iterable<HTMLElement>} */ (list.children)].map((one) => [one.dataset.key, one]));
  items.forEach((item, place) => {
    const name = key(item);
    let element = known.get(name);
    known.delete(name);
    if (!element) {
      element = build(item);
      element.dataset.key = name;
    }
    renew?.(element, item);
    if (list.children[place] !== element) list.insertBefore(element, list.children[place] ?? null);
  });
  for (const one of known.values()) one.remove();
}

/** @param {string} name */
const part = (name) => make("span", { class: name });

/**
 * @param {HTMLElement} element
 * @param {string} name
 */
const find = (element, name) => /** @type {HTMLElement} */ (element.querySelector(`.${name}`));

/** @param {HTMLElement} root */
export function open(root) {
  const error = make("p", { class: "error", role: "alert" });
  const wrong = make("ul", { class: "rowlist" }), fine = make("p", { class: "empty" });
  const raised = make("ul", { class: "rowlist" }), quiet = make("p", { class: "empty" });
  const history = make("ol", { class: "rowlist", tabindex: 0, "aria-labelledby": "history-title" }), never = make("p", { class: "empty" }, t("alarms.never"));
  const rules = make("dl", { class: "alarm-rules" });
  /** @param {string} id @param {string} title @param {...Node} content */
  const section = (id, title, ...content) => make("section", { "aria-labelledby": id }, make("h3", { id }, title), ...content);
  const none = make("p", { class: "empty" }, t("alarms.noRules"));
  root.append(make("div", { class: "title" }, make("h2", {}, t("alarms.title"))), error, make("div", { class: "alarm-columns" },
    make("div", {}, section("raised-title", t("alarms.raised"), raised, quiet), section("wrong-title", t("alarms.wrong"), wrong, fine)),
    make("div", {}, section("history-title", t("alarms.history"), history, never), section("rules-title", t("alarms.rules"), rules, none))));
  let next = 0, open = true;

  /**
   * @param {string} alarm
   * @param {string} source
   */
  async function acknowledge(alarm, source) {
    if (!signedIn) return askToken();
    text(error, "");
    try {
      await call("POST", `/api/v1/alarms/${encodeURIComponent(alarm)}/acknowledge`, { source });
      say(t("alarms.noted", { alarm }));
      await load();
    } catch (trouble) {
      if (trouble instanceof Trouble && trouble.status === 401) lost();
      text(error, why(trouble));
    }
  }

  /** @param {AlarmView[]} alarms */
  function showRaised(alarms) {
    const found = alarms.flatMap((one) => one.raised);
    keep(raised, found, (one) => `${one.alarm} ${one.source}`, (one) => make("li", {}, make("strong", {}, one.alarm), part("text"), part("since"),
      make("button", { type: "button", class: "small acknowledge", "aria-label": t("alarms.acknowledgeOf", { alarm: one.alarm, source: one.source }),
        onclick: () => acknowledge(one.alarm, one.source) }, t("alarms.acknowledge"))),
    (element, one) => {
      text(find(element, "text"), one.text);
      text(find(element, "since"), t(one.acknowledged ? "alarms.acknowledged" : "alarms.since", { time: ago(one.since_s) }));
      find(element, "acknowledge").hidden = one.acknowledged;
      element.classList.toggle("bad", !one.acknowledged);
    });
    quiet.hidden = found.length > 0;
    text(quiet, t(alarms.length ? "alarms.none" : "alarms.noRules"));
    none.hidden = alarms.length > 0;
    keep(rules, alarms, (one) => one.name, (one) => make("div", {}, make("dt", {}, one.name),
      make("dd", {}, one.words), make("dd", {}, make("code", {}, one.rule)), make("dd", { class: "count" })),
    (element, one) => text(find(element, "count"), t("alarms.count", { n: one.count })));
  }

  /** @param {AlarmChange[]} changes */
  function showHistory(changes) {
    keep(history, changes, (one) => String(one.number), (one) => {
      const when = new Date(one.time_s * 1000);
      return make("li", { class: one.kind === "raised" ? "bad" : "" }, make("time", { datetime: when.toISOString() }, when.toLocaleString()),
        make("strong", {}, t(one.kind === "raised" ? "alarms.wasRaised" : "alarms.wasCleared", { alarm: one.alarm })), make("span", {}, one.text));
    });
    never.hidden = changes.length > 0;
  }

  async function load() {
    const [alarms, changes] = await Promise.all([get("/api/v1/alarms"), get("/api/v1/alarms/history")]);
    if (!open) return;
    showRaised(alarms);
    showHistory(changes);
  }

  return {
    /** @param {import("./index.js").State} state */
    update({ status }) {
      const others = status.problems.filter((one) => one.kind !== "alarm");
      keep(wrong, others, (one) => `${one.kind} ${one.source} ${one.stage}`,
        (one) => make("li", {}, make("a", { class: "text", href: one.link }), part("since")),
        (element, one) => {
          text(find(element, "text"), one.text);
          text(find(element, "since"), t("alarms.since", { time: ago(one.since_s) }));
          element.classList.toggle("bad", one.severity === "error");
          element.classList.toggle("warn", one.severity === "warning");
        });
      fine.hidden = others.length > 0;
      text(fine, t(status.problems.length ? "alarms.nothingElse" : "alarms.fine"));
      if (performance.now() < next) return;
      next = performance.now() + EVERY_MS;
      load().catch(() => null); // the frame says that the server does not respond
    },
    close() { open = false; },
  };
}
