// Polls the server and updates the page; reports when the server does not respond, and recovers when it does.

import { get } from "./api.js";
import { $, ago, make, number, say, text } from "./dom.js";
import { showEvents } from "./events.js";
import { showStages } from "./graph.js";
import { begin as beginRouting, update } from "./router.js";
import { begin } from "./session.js";
import { showSources } from "./wall.js";

const EVERY_MS = 1000, SLOWEST_MS = 5000, STAGES_EVERY = 3;

let turn = 0, wait = EVERY_MS, last = -1, started = null, known = false, routed = false, stages = [];

async function look() {
  if (!known) {
    await begin();
    if (!routed) await beginRouting();
    known = routed = true;
  }
  const status = await get("/api/v1/status");
  const sources = await get("/api/v1/sources");
  showSources(sources, status.records.length > 0);
  if (status.last_event !== last) {
    showEvents(await get("/api/v1/events?limit=50"), status.emits);
    last = status.last_event;
  }
  showAlarms(status.alarms);
  if (turn % STAGES_EVERY === 0) showStages(stages = await get("/api/v1/stages"));
  update({ status, sources, stages });
  turn += 1;
  const word = status.stopping ? "stopping" : status.ready ? "running" : "starting";
  text($("status-text"), word);
  $("status").className = `status ${status.ready ? "ok" : ""}`;
  text($("whole"), `${status.device} · ${number(status.frames)} frames · up ${ago(status.uptime_s)}`);
}

let told = new Set();

function showAlarms(alarms) {
  const words = alarms.map((one) => `${one.alarm}: ${one.text}`);
  const keys = alarms.map((one) => `${one.alarm} ${one.source}`);
  const fresh = words.filter((_, place) => !told.has(keys[place])); // texts change every second: only new alarms are announced
  if (fresh.length) say(fresh.join(". "));
  told = new Set(keys);
  const list = $("alarms");
  list.hidden = words.length === 0;
  while (list.children.length > words.length) list.lastChild.remove();
  while (list.children.length < words.length) list.append(make("p"));
  words.forEach((one, place) => text(list.children[place], one));
}

function away(trouble) {
  started ??= Date.now();
  $("status").className = "status bad";
  text($("status-text"), "no response");
  const words = trouble.away ?? true
    ? `The server has not responded since ${new Date(started).toLocaleTimeString()}. The page shows the last known state and retries.`
    : `The server responds with an error: ${trouble.message}`;
  text($("away"), words);
  $("away").hidden = false;
  document.body.classList.add("gone");
}

async function tick() {
  if (!document.hidden) {
    try {
      await look();
      if (started !== null) { // this may be another server, with other events and another token
        started = null;
        known = false;
        last = -1;
        turn = 0;
        $("away").hidden = true;
        document.body.classList.remove("gone");
      }
      wait = EVERY_MS;
    } catch (trouble) {
      away(trouble);
      wait = Math.min(SLOWEST_MS, wait * 1.5);
    }
  }
  setTimeout(tick, wait);
}

$("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  ($("home").hidden ? $("view") : $("home")).focus();
});

tick();
