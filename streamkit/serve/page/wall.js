// The wall: one tile per camera. Images are fetched a few at a time, for visible tiles of running cameras.

import { Trouble, call, get, path } from "./api.js";
import { $, ago, dialog, field, make, number, say, text, why } from "./dom.js";
import { askToken, lost, onSession, signedIn } from "./session.js";
import { openSource } from "./source_form.js";
import { has, t } from "./strings.js";

/** @typedef {import("./types").SourceView} SourceView */

const AT_ONCE = 3; // a browser opens six connections to a server; the others stay free for the user's actions
const EVERY_MS = 350;
const TOLD_MS = 6000; // how long a tile shows the result of an action

/** @type {Map<string, Tile>} */
const tiles = new Map();
/** @type {WeakMap<Element, Tile>} */
const owners = new WeakMap();
let fetching = 0;
let records = false; // whether a stage of the pipeline records clips

/**
 * A word of the API, such as a state, for people.
 * @param {string} group
 * @param {string} word
 */
export const named = (group, word) => (has(`${group}.${word}`) ? t(`${group}.${word}`) : word.replaceAll("_", " "));

class Tile {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {SourceView | null} */
    this.source = null;
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
    /** @type {Record<string, HTMLElement>} */
    this.figures = {};
    const list = make("dl", { class: "figures" });
    for (const key of ["fps", "latency", "dropped", "reconnects"]) {
      list.append(make("div", {}, make("dt", {}, t(`tile.${key}`)), this.figures[key] = make("dd")));
    }
    this.pause = make("button", { type: "button", onclick: () => this.order(this.state === "paused" ? "resume" : "pause") });
    this.record = make("button", { type: "button", "aria-label": t("tile.recordOf", { id }), onclick: () => this.clip() }, t("tile.record"));
    this.error = make("p", { class: "error", role: "alert" });
    this.buttons = make("div", { class: "do" }, this.pause, this.record,
      make("button", { type: "button", "aria-label": t("tile.changeOf", { id }), onclick: () => change(this) }, t("tile.change")),
      make("button", { type: "button", "aria-label": t("tile.removeOf", { id }), onclick: () => remove(this) }, t("tile.remove")));
    this.element = make("li", { class: "tile" },
      this.view,
      make("div", { class: "about" },
        make("div", { class: "name" }, make("h3", {}, id), this.badge), this.address, list, this.message, this.error,
        this.buttons));
    owners.set(this.element, this);
    sight.observe(this.element);
  }

  /** @param {SourceView} source */
  update(source) {
    const before = this.state;
    this.source = source;
    this.state = source.state;
    if (before && before !== source.state) say(t("tile.now", { id: this.id, state: named("state", source.state), message: source.message }));
    const cause = source.cause ? `: ${named("cause", source.cause)}` : "";
    text(this.badge, `${named("state", source.state)}${cause}`);
    this.badge.className = `badge ${this.still_s ? "reconnecting" : source.state}`;
    this.badge.title = t("tile.since", { time: ago(source.since_s) });
    text(this.address, source.address || source.kind);
    this.address.title = source.address;
    const dropped = Object.values(source.dropped).reduce((a, b) => a + b, 0);
    const again = Object.values(source.reconnects).reduce((a, b) => a + b, 0);
    text(this.figures.fps, source.fps.toFixed(1));
    text(this.figures.latency, source.latency.p50_ms === undefined ? "–" : t("time.ms", { n: Math.round(source.latency.p50_ms) }));
    text(this.figures.dropped, number(dropped));
    text(this.figures.reconnects, number(again));
    this.figures.dropped.title = Object.entries(source.dropped).map(([k, n]) => `${k.replaceAll("_", " ")}: ${number(n)}`).join(", ");
    this.figures.reconnects.title = Object.entries(source.reconnects).map(([k, n]) => `${k}: ${number(n)}`).join(", ");
    const notice = performance.now() < this.notice.until ? this.notice.message : "";
    text(this.message, source.state === "running" ? notice : source.message);
    this.message.className = `message ${source.state}`;
    const paused = source.state === "paused";
    text(this.pause, t(paused ? "tile.resume" : "tile.pause"));
    this.pause.setAttribute("aria-label", t(paused ? "tile.resumeOf" : "tile.pauseOf", { id: this.id }));
    this.pause.disabled = source.state === "ended" || source.state === "failed";
    this.record.hidden = !records || !source.packets;
    this.record.disabled = source.state !== "running";
    this.buttons.classList.toggle("four", !this.record.hidden);
    this.show();
    if (large.box.open && enlarged === this.id) showAge(this);
  }

  // For how long no frame has come although one was due, in seconds; 0 while frames come.
  get still_s() {
    return this.source?.quiet_s ?? 0;
  }

  get hintText() {
    if (!signedIn) return t("tile.signIn");
    if (this.state !== "running") return named("state", this.state);
    if (this.still_s) return t("tile.still", { time: ago(this.still_s) });
    return this.image.hidden ? t("tile.waiting") : "";
  }

  show() {
    const live = this.state === "running", hint = this.hintText;
    this.view.disabled = signedIn && !live;
    this.view.classList.toggle("stale", !live || this.still_s > 0);
    if (!signedIn) this.image.hidden = true;
    text(this.hint, hint);
    this.hint.hidden = !hint;
    this.view.setAttribute("aria-label", t(signedIn ? "tile.enlarge" : "tile.signInFor", { id: this.id }));
  }

  press() {
    if (!signedIn) askToken();
    else enlarge(this.id);
  }

  /** @param {string} word */
  async order(word) {
    await doing(this, async () => this.update(await call("POST", path(this.id, `/${word}`))));
  }

  async clip() {
    await doing(this, async () => {
      const source = await call("POST", path(this.id, "/record"));
      this.notice = { message: t("tile.recording"), until: performance.now() + TOLD_MS };
      this.update(source);
      say(t("tile.recordingOf", { id: this.id }));
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
      this.image.alt = t("tile.newest", { id: this.id });
    } catch (trouble) {
      if (trouble instanceof Trouble && trouble.status === 401) lost();
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
  for (const entry of entries) {
    const tile = owners.get(entry.target);
    if (tile) tile.seen = entry.isIntersecting;
  }
}, { rootMargin: "100px" });

setInterval(() => {
  if (!signedIn || document.hidden || large.box.open) return;
  const now = performance.now();
  const due = [...tiles.values()].filter((tile) => tile.seen && tile.state === "running" && !tile.busy && tile.next <= now);
  due.sort((a, b) => a.next - b.next);
  for (const tile of due.slice(0, Math.max(0, AT_ONCE - fetching))) tile.fetch();
}, 60);

onSession(() => tiles.forEach((tile) => tile.show()));

/**
 * @param {SourceView[]} sources
 * @param {boolean} recorded whether a stage records clips
 */
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

/**
 * @param {Tile} tile
 * @param {() => Promise<void>} work
 */
async function doing(tile, work) {
  if (!signedIn) return askToken();
  text(tile.error, "");
  try {
    await work();
  } catch (trouble) {
    if (trouble instanceof Trouble && trouble.status === 401) lost();
    text(tile.error, why(trouble));
  }
}

/** @param {Tile} tile */
const change = (tile) => (signedIn ? openSource(tile.source) : askToken());
$("add").addEventListener("click", () => openSource(null));

/** @type {Tile | null} */
let removing = null;
const removal = dialog("removal", async () => {
  if (!removing) return;
  await call("DELETE", path(removing.id));
  say(t("removal.done", { id: removing.id }));
  $("cameras").focus();
});

/** @param {Tile} tile */
function remove(tile) {
  if (!signedIn) return askToken();
  removing = tile;
  text($("removal-title"), t("removal.title", { id: tile.id }));
  removal.open();
}

const large = dialog("large");
const picture = /** @type {HTMLImageElement} */ ($("large-image"));

let enlarged = ""; // the id of the camera that is shown large

/**
 * Says how old the large picture is where no new one comes.
 * @param {Tile} tile
 */
function showAge(tile) {
  const stale = tile.state !== "running" || tile.still_s > 0;
  picture.classList.toggle("stale", stale);
  text($("large-age"), stale ? tile.hintText : "");
}

/** @param {string} id */
function enlarge(id) {
  const tile = tiles.get(id);
  enlarged = id;
  if (tile) showAge(tile);
  text($("large-title"), id);
  picture.alt = t("tile.stream", { id });
  picture.src = path(id, "/live.mjpg");
  large.open();
}

large.box.addEventListener("close", () => picture.removeAttribute("src"));

// A link such as #/home?source=gate leads to the tile.
addEventListener("hashchange", () => {
  const [path, query = ""] = location.hash.split("?");
  const id = new URLSearchParams(query).get("source");
  if (path === "#/home" && id) tiles.get(id)?.element.scrollIntoView({ block: "center" });
});
