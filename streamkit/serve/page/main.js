// Polls the server and updates the page; reports when the server does not respond, and recovers when it does.

import { Trouble, get } from "./api.js";
import { $, ago, number, say, text, why } from "./dom.js";
import { showEvents } from "./events.js";
import { begin as beginRouting, everyMs, update } from "./router.js";
import { askToken, begin, lost, onSession } from "./session.js";
import { fill, t } from "./strings.js";
import { showSources } from "./wall.js";

/** @typedef {import("./types").Status} Status */

const SLOWEST_MS = 5000;

let wait = everyMs(), last = -1, known = false, routed = false;
/** @type {number | null} */
let started = null; // when the server ceased to respond

async function look() {
  if (!known) {
    await begin();
    known = true;
  }
  const status = await get("/api/v1/status");
  const sources = await get("/api/v1/sources");
  if (!routed) await beginRouting(); // once the page may read: a view loads its own data
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
let told = new Set();

// Whether all is well, at the top of every view: red with the reason in words where something is wrong.
/** @param {Status} status */
function showStatus(status) {
  const { problems } = status;
  const wrong = problems.some((one) => one.severity === "error");
  const word = t(status.stopping ? "status.stopping" : !status.ready ? "status.starting" : problems.length > 1 ? "status.many"
    : problems.length ? "status.one" : "status.running", { n: problems.length });
  show(wrong ? "bad" : problems.length ? "warn" : status.ready ? "ok" : "", word,
    problems.length > 1 ? t("status.more", { text: problems[0].text, n: problems.length - 1 }) : problems[0]?.text ?? "");
  $("status").title = problems.map((one) => one.text).join("\n");
  // texts change every second: only new problems are announced
  const keys = problems.filter((one) => !one.acknowledged).map((one) => [`${one.kind} ${one.source} ${one.stage}`, one.text]);
  const fresh = keys.filter(([key]) => !told.has(key));
  if (fresh.length) say(fresh.map(([, words]) => words).join(". "));
  told = new Set(keys.map(([key]) => key));
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
        known = false;
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
