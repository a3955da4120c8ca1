// The tile of a camera, with its picture. Images are fetched a few at a time, for visible tiles of running cameras.

import { Trouble, call, get, path } from "./api.js";
import { named, stateWord } from "./condition.js";
import { $, ago, dialog, field, make, number, say, text, why } from "./dom.js";
import { actionIcon } from "./icons.js";
import { nameOf } from "./names.js";
import { address } from "./router.js";
import { askToken, lost, onSession, signedIn } from "./session.js";
import { openSource } from "./source_form.js";
import { t } from "./strings.js";

/** @typedef {import("./types").SourceView} SourceView */

const AT_ONCE = 3; // a browser opens six connections to a server; the others stay free for the user's actions
const EVERY_MS = 350;
const TOLD_MS = 6000; // how long a tile shows the result of an action

/** All tiles that are shown, by camera. @type {Map<string, Tile>} */
const tiles = new Map();
/** @type {WeakMap<Element, Tile>} */
const owners = new WeakMap();
let fetching = 0;
let records = false; // whether a stage of the pipeline records clips

/** @param {boolean} recorded whether a stage of the pipeline records clips */
export function setRecorded(recorded) {
  records = recorded;
}

export class Tile {
  /** @param {string} id */
  constructor(id) {
    const name = nameOf(id);
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
    this.pause = iconButton("", "pause", () => this.order(this.state === "paused" ? "resume" : "pause"));
    this.record = iconButton(t("tile.recordOf", { id: name }), "record", () => this.clip());
    this.error = make("p", { class: "error", role: "alert" });
    this.buttons = make("div", { class: "do" }, this.pause, this.record,
      make("a", { class: "icon-button", href: address("live", { words: id }), "aria-label": t("overview.watchOf", { id: name }), title: t("overview.watch") }, actionIcon("watch")),
      iconButton(t("tile.changeOf", { id: name }), "change", () => change(this)),
      iconButton(t("tile.removeOf", { id: name }), "remove", () => remove(this)));
    this.heading = make("h3", { title: id }, name);
    this.element = make("li", { class: "tile", "data-source": id },
      this.view,
      make("div", { class: "about" },
        make("div", { class: "name" }, this.heading, this.badge), this.address, list, this.message, this.error,
        this.buttons));
    tiles.set(id, this);
    owners.set(this.element, this);
    sight.observe(this.element);
  }

  /** @param {SourceView} source */
  update(source) {
    const before = this.state;
    this.source = source;
    this.state = source.state;
    text(this.heading, source.name);
    if (before && before !== source.state) say(t("tile.now", { id: source.name, state: named("state", source.state), message: source.message }));
    text(this.badge, stateWord(source));
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
    this.pause.title = t(paused ? "tile.resumeOf" : "tile.pauseOf", { id: source.name });
    this.pause.setAttribute("aria-label", this.pause.title);
    if (this.pause.dataset.icon !== (paused ? "resume" : "pause")) {
      this.pause.dataset.icon = paused ? "resume" : "pause";
      this.pause.replaceChildren(actionIcon(this.pause.dataset.icon));
    }
    this.pause.disabled = source.state === "ended" || source.state === "failed";
    this.record.hidden = !records || !source.packets;
    this.record.disabled = source.state !== "running";
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
    this.view.setAttribute("aria-label", t(signedIn ? "tile.enlarge" : "tile.signInFor", { id: nameOf(this.id) }));
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
      say(t("tile.recordingOf", { id: nameOf(this.id) }));
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
      this.image.alt = t("tile.newest", { id: nameOf(this.id) });
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
    if (tiles.get(this.id) === this) tiles.delete(this.id);
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
 * A button that shows a drawing; screen readers read its name, and hovering shows it.
 * @param {string} name
 * @param {string} drawing
 * @param {() => void} onclick
 */
function iconButton(name, drawing, onclick) {
  return make("button", { type: "button", class: "icon-button", "aria-label": name, title: name, onclick }, actionIcon(drawing));
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

/** @type {Tile | null} */
let removing = null;
const removal = dialog("removal", async () => {
  if (!removing) return;
  await call("DELETE", path(removing.id));
  say(t("removal.done", { id: nameOf(removing.id) }));
  $("cameras").focus();
});

/** @param {Tile} tile */
function remove(tile) {
  if (!signedIn) return askToken();
  removing = tile;
  text($("removal-title"), t("removal.title", { id: nameOf(tile.id) }));
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
  text($("large-title"), nameOf(id));
  picture.alt = t("tile.stream", { id: nameOf(id) });
  picture.src = path(id, "/live.mjpg");
  large.open();
}

large.box.addEventListener("close", () => picture.removeAttribute("src"));
