// Polls the server and updates the page; reports when the server does not respond, and recovers when it does.

import { watchAlerts } from "./alerts.js";
import { Trouble, get } from "./api.js";
import { setClock } from "./clock.js";
import { assignColors } from "./colors.js";
import { $, ago, make, number, say, text, why } from "./dom.js";
import { showEvents } from "./events.js";
import { begin as beginRouting, everyMs, update } from "./router.js";
import { askToken, begin, lost, onSession } from "./session.js";
import { fill, t } from "./strings.js";
import "./views/index.js"; // adds the views to the router
import { showSources } from "./wall.js";

/** @typedef {import("./types").Status} Status */

const SLOWEST_MS = 5000;

let wait = everyMs(), last = -1, sessionKnown = false, routed = false;
/** @type {number | null} */
let started = null; // when the server ceased to respond

async function look() {
  if (!sessionKnown) await begin();
  sessionKnown = true;
  const status = await get("/api/v1/status");
  const sources = await get("/api/v1/sources");
  setClock(status.time_s);
  assignColors(sources.map((/** @type {import("./types").SourceView} */ { id }) => id));
  if (!routed) {
    await beginRouting(); // once the page may read: a view loads its own data
    watchAlerts();
  }
  routed = true;
  showSources(sources, status.records.length > 0);
  if (status.last_event !== last) {
    showEvents(await get("/api/v1/events?limit=20"), status.emits);
    last = status.last_event;
  }
  update({ status, sources });
  showStatus(status);
  text($("whole"), t("status.whole", { device: status.device, frames: number(status.frames), time: ago(status.uptime_s) }));
}

/** @type {Set<string>} */
let announced = new Set(); // the ids of problems

/**
 * The word for the state of the pipeline.
 * @param {Status} status
 */
function word({ stopping, ready, problems }) {
  if (stopping) return t("status.stopping");
  if (!ready) return t("status.starting");
  if (problems.length > 1) return t("status.many", { n: problems.length });
  return t(problems.length ? "status.one" : "status.running");
}

// Whether all is well, at the top of every view: red with the reason in words where something is wrong.
/** @param {Status} status */
function showStatus(status) {
  const { problems, ready } = status, wrong = problems.some(({ severity }) => severity === "error");
  const opening = ready || !status.opening.length ? "" : t("status.opening", { stages: status.opening.join(", ") });
  const reasons = [...problems.map((problem) => problem.text), opening].filter(Boolean), [first = ""] = reasons;
  const kind = wrong ? "bad" : problems.length ? "warn" : ready ? "ok" : "";
  show(kind, word(status), reasons.length > 1 ? t("status.more", { text: first, n: reasons.length - 1 }) : first);
  $("status").title = reasons.join("\n");
  // texts change every second: only new problems are announced
  const open = problems.filter(({ acknowledged }) => !acknowledged);
  const fresh = open.filter(({ id }) => !announced.has(id));
  if (fresh.length) say(fresh.map((problem) => problem.text).join(". "));
  announced = new Set(open.map(({ id }) => id));
  count(problems);
}

// The number of problems beside the view that lists them.
/** @param {Status["problems"]} problems */
function count(problems) {
  const link = document.querySelector('#views a[data-view="alarms"]');
  if (!link) return;
  let badge = link.querySelector(".problem-count");
  if (!badge) link.append(badge = make("span", { class: "problem-count" }));
  text(badge, problems.length ? String(problems.length) : "");
  badge.classList.toggle("bad", problems.some(({ severity }) => severity === "error"));
}

/**
 * @param {string} kind
 * @param {string} word
 * @param {string} reason
 */
function show(kind, word, reason) {
  $("status").className = `status ${kind}`;
  document.querySelector("header")?.classList.toggle("bad", kind === "bad");
  text($("status-text"), word);
  text($("reason"), reason);
}

/** @param {unknown} trouble */
function away(trouble) {
  started ??= Date.now();
  show("bad", t("status.away"), t("status.since", { time: new Date(started).toLocaleTimeString() }));
  const answered = trouble instanceof Trouble && !trouble.away;
  const words = answered ? t("api.error", { message: why(trouble) }) : t("api.awaySince", { time: new Date(started).toLocaleTimeString() });
  text($("away"), words);
  $("away").hidden = false;
  document.body.classList.add("gone");
}

// The server answers only requests with a token: nothing that was read before stays on the page.
function lock() {
  lost();
  if (last !== -1) return location.reload();
  if (!document.body.classList.contains("locked")) askToken();
  document.body.classList.add("locked");
  show("", t("status.locked"), t("status.lockedWhy"));
}

onSession((value) => { if (value && document.body.classList.contains("locked")) location.reload(); });

async function tick() {
  if (!document.hidden) {
    try {
      await look();
      if (started !== null) { // this may be another server, with other events and another token
        started = null;
        sessionKnown = false;
        last = -1;
        $("away").hidden = true;
        document.body.classList.remove("gone");
      }
      wait = everyMs();
    } catch (trouble) {
      if (trouble instanceof Trouble && trouble.status === 401) lock();
      else away(trouble);
      wait = Math.min(SLOWEST_MS, wait * 1.5);
    }
  }
  setTimeout(tick, wait);
}

fill(document);
$("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  $($("home").hidden ? "view" : "home").focus();
});
tick();
