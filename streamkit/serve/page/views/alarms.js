// What is wrong now, which problems are acknowledged, the history of alarms, and their rules in words.

import { Trouble, call, get } from "../api.js";
import { ago, make, say, text, why } from "../dom.js";
import { askToken, lost, signedIn } from "../session.js";
import { t } from "../strings.js";
import { pushSection } from "./alarms-push.js";

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
  const wrong = make("ul", { class: "rowlist" }), fine = make("p", { class: "empty" }, t("alarms.fine"));
  const history = make("ol", { class: "rowlist", tabindex: 0, "aria-labelledby": "history-title" }), never = make("p", { class: "empty" }, t("alarms.never"));
  const rules = make("dl", { class: "alarm-rules" });
  /** @param {string} id @param {string} title @param {...Node} content */
  const section = (id, title, ...content) => make("section", { "aria-labelledby": id }, make("h3", { id }, title), ...content);
  const none = make("p", { class: "empty" }, t("alarms.noRules")), push = pushSection();
  root.append(make("div", { class: "title" }, make("h2", {}, t("alarms.title"))), error, make("div", { class: "alarm-columns" },
    make("div", {}, section("wrong-title", t("alarms.wrong"), wrong, fine), push.section),
    make("div", {}, section("history-title", t("alarms.history"), history, never), section("rules-title", t("alarms.rules"), rules, none))));
  let next = 0, open = true;

  /** @param {PipelineProblem} problem */
  async function acknowledge(problem) {
    if (!signedIn) return askToken();
    text(error, "");
    try {
      renew(/** @type {HTMLElement} */ (wrong.querySelector(`[data-key="${CSS.escape(problem.id)}"]`)),
        await call("POST", "/api/v1/problems/acknowledge", { id: problem.id }));
      say(t("alarms.noted", { text: problem.text }));
      await load();
    } catch (trouble) {
      if (trouble instanceof Trouble && trouble.status === 401) lost();
      text(error, why(trouble));
    }
  }

  /** @param {PipelineProblem} problem */
  function row(problem) {
    return make("li", {}, make("a", { class: "text" }), part("alarm-names"), part("since"),
      make("button", { type: "button", class: "small acknowledge", "data-needs": "operator", onclick: () => acknowledge(problem) }, t("alarms.acknowledge")));
  }

  /**
   * @param {HTMLElement} element
   * @param {PipelineProblem} problem
   */
  function renew(element, problem) {
    const link = /** @type {HTMLAnchorElement} */ (find(element, "text")), button = find(element, "acknowledge");
    link.href = problem.link;
    text(link, problem.text);
    text(find(element, "alarm-names"), problem.kind !== "alarm" && problem.alarms.length ? t("alarms.of", { names: problem.alarms.join(", ") }) : "");
    text(find(element, "since"), t(problem.acknowledged ? "alarms.acknowledged" : "alarms.since", { time: ago(problem.since_s) }));
    button.hidden = problem.acknowledged;
    button.setAttribute("aria-label", t("alarms.acknowledgeOf", { text: problem.text }));
    element.classList.toggle("bad", problem.severity === "error");
    element.classList.toggle("warn", problem.severity === "warning");
  }

  /** @param {AlarmView[]} alarms */
  function showRules(alarms) {
    none.hidden = alarms.length > 0;
    keep(rules, alarms, (alarm) => alarm.name, (alarm) => make("div", {}, make("dt", {}, alarm.name),
      make("dd", {}, alarm.words), make("dd", {}, make("code", {}, alarm.rule)), make("dd", { class: "count" })),
    (element, alarm) => {
      const sources = alarm.raised.map(({ source }) => source).join(", ");
      const count = t("alarms.count", { n: alarm.count });
      text(find(element, "count"), sources ? t("alarms.raisedFor", { sources, count }) : count);
    });
  }

  /** @param {AlarmChange[]} changes */
  function showHistory(changes) {
    keep(history, changes, (change) => String(change.number), (change) => {
      const when = new Date(change.time_s * 1000);
      return make("li", { class: change.kind === "raised" ? "bad" : "" }, make("time", { datetime: when.toISOString() }, when.toLocaleString()),
        make("strong", {}, t(change.kind === "raised" ? "alarms.wasRaised" : "alarms.wasCleared", { alarm: change.alarm })), make("span", {}, change.text));
    });
    never.hidden = changes.length > 0;
  }

  async function load() {
    const [alarms, changes] = await Promise.all([get("/api/v1/alarms"), get("/api/v1/alarms/history")]);
    if (!open) return;
    showRules(alarms);
    showHistory(changes);
  }

  return {
    /** @param {import("./index.js").State} state */
    update({ status: { problems } }) {
      keep(wrong, problems, (problem) => problem.id, row, renew);
      fine.hidden = problems.length > 0;
      if (performance.now() < next) return;
      next = performance.now() + EVERY_MS;
      push.load().catch(() => null);
      load().catch(() => null); // the frame says that the server does not respond
    },
    close() { open = false; },
  };
}
