// The wall: one tile per camera. Images are fetched a few at a time, for visible tiles of running cameras.

import { call, get, path } from "./api.js";
import { $, ago, dialog, make, number, say, text } from "./dom.js";
import { askToken, lost, onSession, signedIn } from "./session.js";
import { openSource } from "./source_form.js";

const AT_ONCE = 3; // a browser opens six connections to a server; the others stay free for the user's actions
const EVERY_MS = 350;
const TOLD_MS = 6000; // how long a tile shows the result of an action

const tiles = new Map();
let fetching = 0;
let records = false; // whether a stage of the pipeline records clips

class Tile {
  constructor(id) {
    this.id = id;
    this.seen = false;
    this.next = 0;
    this.busy = false;
    this.state = "";
    this.notice = { message: "", until: 0 };
    this.image = make("img", { alt: "", hidden: true });
    this.hint = make("span");
    this.view = make("button", { type: "button", class: "view", onclick: () => this.press() }, this.image, this.hint);
    this.badge = make("span", { class: "badge" });
    this.address = make("p", { class: "address" });
    this.message = make("p", { class: "message" });
    this.figures = {};
    const list = make("dl", { class: "figures" });
    for (const [key, label] of [["fps", "Frames/s"], ["latency", "Latency"], ["dropped", "Dropped"], ["reconnects", "Reconnects"]]) {
      this.figures[key] = make("dd");
      list.append(make("div", {}, make("dt", {}, label), this.figures[key]));
    }
    this.pause = make("button", { type: "button", onclick: () => this.order(this.state === "paused" ? "resume" : "pause") });
    this.record = make("button", { type: "button", "aria-label": `Record a clip of ${id}`, onclick: () => this.clip() }, "Record");
    this.error = make("p", { class: "error", role: "alert" });
    this.buttons = make("div", { class: "do" }, this.pause, this.record,
      make("button", { type: "button", "aria-label": `Change ${id}`, onclick: () => change(this) }, "Change"),
      make("button", { type: "button", "aria-label": `Remove ${id}`, onclick: () => remove(this) }, "Remove"));
    this.element = make("li", { class: "tile" },
      this.view,
      make("div", { class: "about" },
        make("div", { class: "name" }, make("h3", {}, id), this.badge), this.address, list, this.message, this.error,
        this.buttons));
    this.element.tile = this;
    sight.observe(this.element);
  }

  update(source) {
    const before = this.state;
    this.source = source;
    this.state = source.state;
    if (before && before !== source.state) say(`${this.id} is ${source.state}. ${source.message}`);
    const cause = source.cause ? `: ${source.cause.replace("_", " ")}` : "";
    text(this.badge, `${source.state}${cause}`);
    this.badge.className = `badge ${source.state}`;
    this.badge.title = `for ${ago(source.since_s)}`;
    text(this.address, source.address || source.kind);
    this.address.title = source.address;
    const dropped = Object.values(source.dropped).reduce((a, b) => a + b, 0);
    const again = Object.values(source.reconnects).reduce((a, b) => a + b, 0);
    text(this.figures.fps, source.fps.toFixed(1));
    text(this.figures.latency, source.latency.p50_ms === undefined ? "–" : `${Math.round(source.latency.p50_ms)} ms`);
    text(this.figures.dropped, number(dropped));
    text(this.figures.reconnects, number(again));
    this.figures.dropped.title = Object.entries(source.dropped).map(([k, n]) => `${k.replaceAll("_", " ")}: ${number(n)}`).join(", ");
    this.figures.reconnects.title = Object.entries(source.reconnects).map(([k, n]) => `${k}: ${number(n)}`).join(", ");
    const notice = performance.now() < this.notice.until ? this.notice.message : "";
    text(this.message, source.state === "running" ? notice : source.message);
    this.message.className = `message ${source.state}`;
    const paused = source.state === "paused";
    text(this.pause, paused ? "Resume" : "Pause");
    this.pause.setAttribute("aria-label", `${paused ? "Resume" : "Pause"} ${this.id}`);
    this.pause.disabled = source.state === "ended" || source.state === "failed";
    this.record.hidden = !records || !source.packets;
    this.record.disabled = source.state !== "running";
    this.buttons.classList.toggle("four", !this.record.hidden);
    this.show();
  }

  show() {
    const live = this.state === "running";
    this.view.disabled = signedIn && !live;
    this.view.classList.toggle("stale", !live);
    if (!signedIn) this.image.hidden = true;
    const hint = !signedIn ? "Sign in to see images" : !live ? this.state : this.image.hidden ? "waiting for an image" : "";
    text(this.hint, hint);
    this.hint.hidden = !hint;
    this.view.setAttribute("aria-label", signedIn ? `Enlarge ${this.id}` : `Sign in to see ${this.id}`);
  }

  press() {
    if (!signedIn) askToken();
    else enlarge(this.id);
  }

  async order(word) {
    await doing(this, async () => this.update(await call("POST", path(this.id, `/${word}`))));
  }

  async clip() {
    await doing(this, async () => {
      const source = await call("POST", path(this.id, "/record"));
      this.notice = { message: "Recording a clip: see Events.", until: performance.now() + TOLD_MS };
      this.update(source);
      say(`Recording a clip of ${this.id}.`);
    });
  }

  async fetch() {
    this.busy = true;
    fetching += 1;
    try {
      const blob = await get(path(this.id, "/snapshot.jpg"));
      const url = URL.createObjectURL(blob);
      const old = this.image.src;
      this.image.src = url;
      await this.image.decode();
      if (old) URL.revokeObjectURL(old);
      this.image.hidden = false;
      this.image.alt = `The newest frame of ${this.id}`;
    } catch (trouble) {
      if (trouble.status === 401) lost();
      this.next = performance.now() + 1500;
    } finally {
      this.busy = false;
      fetching -= 1;
      this.next = Math.max(this.next, performance.now() + EVERY_MS);
      this.show();
    }
  }

  gone() {
    sight.unobserve(this.element);
    if (this.image.src) URL.revokeObjectURL(this.image.src);
    this.element.remove();
  }
}

const sight = new IntersectionObserver((entries) => {
  for (const entry of entries) entry.target.tile.seen = entry.isIntersecting;
}, { rootMargin: "100px" });

setInterval(() => {
  if (!signedIn || document.hidden || large.box.open) return;
  const now = performance.now();
  const due = [...tiles.values()].filter((tile) => tile.seen && tile.state === "running" && !tile.busy && tile.next <= now);
  due.sort((a, b) => a.next - b.next);
  for (const tile of due.slice(0, Math.max(0, AT_ONCE - fetching))) tile.fetch();
}, 60);

onSession(() => tiles.forEach((tile) => tile.show()));

export function showSources(sources, recorded) {
  records = recorded;
  const wall = $("wall");
  const known = new Set(sources.map((source) => source.id));
  for (const [id, tile] of tiles) {
    if (!known.has(id)) {
      tile.gone();
      tiles.delete(id);
    }
  }
  sources.forEach((source, place) => {
    let tile = tiles.get(source.id);
    if (!tile) tiles.set(source.id, tile = new Tile(source.id));
    tile.update(source);
    if (wall.children[place] !== tile.element) wall.insertBefore(tile.element, wall.children[place] ?? null);
  });
  $("nothing").hidden = sources.length > 0;
  text($("count"), sources.length ? String(sources.length) : "");
}

// --------------------------------------------------------------------------------------------------- user actions

async function doing(tile, work) {
  if (!signedIn) return askToken();
  text(tile.error, "");
  try {
    await work();
  } catch (trouble) {
    if (trouble.status === 401) lost();
    text(tile.error, trouble.message);
  }
}

const change = (tile) => (signedIn ? openSource(tile.source) : askToken());
$("add").addEventListener("click", () => openSource(null));

let removing = null;
const removal = dialog("removal", async () => {
  await call("DELETE", path(removing.id));
  say(`${removing.id} was removed.`);
  $("cameras").focus();
});

function remove(tile) {
  if (!signedIn) return askToken();
  removing = tile;
  text($("removal-title"), `Remove ${tile.id}?`);
  removal.open();
}

const large = dialog("large");

function enlarge(id) {
  text($("large-title"), id);
  $("large-image").alt = `Live stream of ${id}`;
  $("large-image").src = path(id, "/live.mjpg");
  large.open();
}

large.box.addEventListener("close", () => $("large-image").removeAttribute("src"));
