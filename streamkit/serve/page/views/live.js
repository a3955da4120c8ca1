// The live view: a grid of cameras that fills the screen, with what was found drawn over their video.

import { make, text } from "../dom.js";
import { Overlay } from "../live/overlay.js";
import { Player } from "../live/player.js";
import { Records } from "../live/records.js";
import { Stills } from "../live/stills.js";
import { Videos } from "../live/videos.js";
import { address } from "../router.js";
import { askToken, signedIn } from "../session.js";
import { t } from "../strings.js";

const SIZES = [1, 4, 9, 16, 25];
const LAYERS = ["boxes", "labels", "trails", "shapes", "masks"];
const STORE = "streamkit.live";
const SHAPE = 16 / 9;
const LAG_DECAY = 0.98;

/** @typedef {{ size: number | null, page: number, show: Record<string, boolean> }} Choice */

/** @returns {Choice} */
function stored() {
  const choice = { size: null, page: 0, show: Object.fromEntries(LAYERS.map((one) => [one, true])) };
  try {
    const found = JSON.parse(localStorage.getItem(STORE) ?? "{}");
    return {
      size: SIZES.includes(found.size) ? found.size : null,
      page: Number.isInteger(found.page) ? found.page : 0,
      show: { ...choice.show, ...found.show },
    };
  } catch {
    return choice;
  }
}

// One camera of the grid.
class Cell {
  /**
   * @param {string} id
   * @param {LiveView} view
   */
  constructor(id, view) {
    this.id = id;
    this.view = view;
    /** @type {any} */
    this.source = null;
    /** @type {Player | null} */
    this.player = null;
    this.reason = ""; // why images are shown
    this.pts_s = /** @type {number | null} */ (null);
    this.video = make("video", { playsinline: true, disablepictureinpicture: true });
    this.video.muted = true; // without it, a browser plays nothing by itself
    this.image = make("img", { alt: t("live.picture", { id }), hidden: true });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.overlay = new Overlay(this.canvas, view.records);
    this.hint = make("p", { class: "hint" });
    this.badge = make("span", { class: "badge" });
    this.mode = make("span", { class: "mode", hidden: true }, t("live.images"));
    this.full = make("button", { type: "button", class: "full", "aria-label": t("live.enlarge", { id }), onclick: () => this.enlarge() });
    this.element = make("li", { class: "cell", "data-source": id, ondblclick: () => this.enlarge() },
      this.image, this.video, this.canvas, this.hint,
      make("div", { class: "bar" }, make("h3", {}, id), this.badge, this.mode, this.full));
    this.hint.addEventListener("click", () => signedIn || askToken());
    this.next();
  }

  // Calls `frame` for each frame of the video that comes on the screen.
  next() {
    const { video } = this;
    if (this.gone) return;
    if ("requestVideoFrameCallback" in video) {
      video.requestVideoFrameCallback((/** @type {number} */ _, /** @type {{ mediaTime: number }} */ about) => {
        this.frame(about.mediaTime);
        this.next();
      });
    } else {
      requestAnimationFrame(() => {
        if (video.readyState >= 2) this.frame(video.currentTime);
        this.next();
      });
    }
  }

  /** @param {number} media_s */
  frame(media_s) {
    if (!this.player) return;
    this.pts_s = this.player.shown(media_s);
    this.draw();
  }

  draw() {
    const { player, video } = this;
    const playing = player?.state === "playing" && this.source?.state === "running";
    const record = playing && this.pts_s !== null ? this.view.records.find(this.id, this.pts_s) : null;
    this.canvas.dataset.frame = record ? String(record.frame) : "";
    this.overlay.draw(record, { width: video.videoWidth, height: video.videoHeight }, this.view.choice.show);
  }

  // A record has come: of the frame on the screen if records are late. The video is delayed as long as they need.
  /** @param {import("../live/records.js").FrameRecord} record */
  arrived(record) {
    const { player } = this;
    if (!player) return;
    const newest = player.newest_s;
    if (newest !== null) player.lag_s = Math.max(newest - record.pts_s, player.lag_s * LAG_DECAY);
    if (this.pts_s !== null && Math.abs(record.pts_s - this.pts_s) < 0.004) this.draw();
  }

  /**
   * @param {any} source
   * @param {string[]} hides the stages that hide objects
   */
  update(source, hides) {
    this.source = source;
    const live = source.state === "running";
    if (signedIn && source.packets && hides.length === 0) this.player ??= new Player(this.id, this.view.videos, this.video, (state, why) => this.changed(state, why));
    else this.stop();
    if (hides.length) this.reason = t("live.imagesHidden", { stages: hides.join(", ") });
    else if (!source.packets) this.reason = t("live.imagesOnly", { reason: t("live.noPackets") });
    else if (this.player?.state !== "refused") this.reason = "";
    const cause = source.cause ? `: ${source.cause.replace("_", " ")}` : "";
    text(this.badge, `${source.state}${cause}`);
    this.badge.className = `badge ${source.state}`;
    this.element.classList.toggle("stale", !live);
    this.show();
  }

  /**
   * @param {string} state
   * @param {string} why
   */
  changed(state, why) {
    if (state === "refused") this.reason = t("live.imagesOnly", { reason: why.startsWith("video/") ? t("live.notPlayed", { mime: why }) : why });
    else this.reason = "";
    this.show();
  }

  show() {
    const playing = this.player?.state === "playing", live = this.source?.state === "running";
    this.video.hidden = !playing;
    if (playing || !signedIn) this.image.hidden = true;
    if (signedIn && live && !playing) this.view.stills.want(this.id, this.image);
    else this.view.stills.drop(this.id);
    this.mode.hidden = !this.reason || playing;
    this.mode.title = this.reason;
    const message = this.source?.message ? `${this.source.state}. ${this.source.message}` : this.source?.state ?? "";
    const hint = !signedIn ? t("live.signIn") : !live ? message : playing || !this.image.hidden ? "" : t("live.waiting");
    text(this.hint, hint);
    this.hint.hidden = !hint;
    if (!playing || !live) this.draw();
  }

  enlarge() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.element.requestFullscreen?.();
  }

  stop() {
    this.player?.close();
    this.player = null;
    this.pts_s = null;
  }

  close() {
    this.gone = true;
    this.stop();
    this.view.stills.drop(this.id);
    if (this.image.src) URL.revokeObjectURL(this.image.src);
    this.element.remove();
  }
}

class LiveView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.choice = stored();
    /** @type {Map<string, Cell>} */
    this.cells = new Map();
    /** @type {any[]} */
    this.sources = [];
    /** @type {string[]} */
    this.hides = [];
    this.records = new Records((record) => this.cells.get(record.source)?.arrived(record));
    this.stills = new Stills();
    this.videos = new Videos();
    this.grid = make("ul", { class: "cells", "aria-label": t("live.wall") });
    this.none = make("p", { class: "empty", hidden: true }, t("live.none"), " ", make("a", { href: address("home") }, t("live.add")));
    /** @type {HTMLElement} */
    this.root = make("div", { class: "live" }, make("h2", { class: "unseen" }, t("live.title")), this.bar(), this.none, this.grid);
    root.append(this.root);
    this.sight = new ResizeObserver(() => this.place());
    this.sight.observe(this.grid);
    this.hidden = () => this.arrange();
    document.addEventListener("visibilitychange", this.hidden);
  }

  /** @returns {HTMLElement} */
  bar() {
    this.sizes = SIZES.map((n) => make("button", { type: "button", "aria-label": t("live.sizeOf", { n }), onclick: () => this.choose({ size: n, page: 0 }) }, String(n)));
    this.layers = LAYERS.map((name) => make("button", {
      type: "button", onclick: () => this.choose({ show: { ...this.choice.show, [name]: !this.choice.show[name] } }),
    }, t(`live.${name}`)));
    this.where = make("span", { class: "where" });
    this.back = make("button", { type: "button", "aria-label": t("live.previous"), onclick: () => this.choose({ page: this.page - 1 }) }, "‹");
    this.forth = make("button", { type: "button", "aria-label": t("live.next"), onclick: () => this.choose({ page: this.page + 1 }) }, "›");
    this.pager = make("div", { role: "group", class: "group", "aria-label": t("live.pages") }, this.back, this.where, this.forth);
    return make("div", { class: "tools" },
      make("div", { role: "group", class: "group", "aria-label": t("live.size") }, ...this.sizes), this.pager,
      make("div", { role: "group", class: "group", "aria-label": t("live.show") }, ...this.layers),
      make("button", { type: "button", class: "screen", onclick: () => this.root.requestFullscreen?.() }, t("live.fullscreen")));
  }

  /** @param {Partial<Choice>} change */
  choose(change) {
    this.choice = { ...this.choice, ...change };
    try {
      localStorage.setItem(STORE, JSON.stringify(this.choice));
    } catch { /* no storage: the choice ends with the page */ }
    this.arrange();
    for (const cell of this.cells.values()) cell.draw();
  }

  // The smallest grid with room for all, unless the user has chosen one.
  get size() {
    return this.choice.size ?? SIZES.find((n) => n >= this.sources.length) ?? SIZES[SIZES.length - 1];
  }

  get pages() {
    return Math.max(1, Math.ceil(this.sources.length / this.size));
  }

  get page() {
    return Math.min(Math.max(0, this.choice.page), this.pages - 1);
  }

  /** @param {import("./index.js").State} state */
  update({ status, sources }) {
    this.sources = sources;
    this.hides = status.hides ?? [];
    this.arrange();
  }

  // Fills the grid with the sources of the page; what is not on the screen is not fetched.
  arrange() {
    const first = this.page * this.size;
    const shown = document.hidden ? [] : this.sources.slice(first, first + this.size);
    const ids = shown.map((source) => source.id);
    for (const [id, cell] of this.cells) {
      if (ids.includes(id)) continue;
      cell.close();
      this.cells.delete(id);
    }
    shown.forEach((source, place) => {
      let cell = this.cells.get(source.id);
      if (!cell) this.cells.set(source.id, cell = new Cell(source.id, this));
      if (this.grid.children[place] !== cell.element) this.grid.insertBefore(cell.element, this.grid.children[place] ?? null);
      cell.update(source, this.hides);
    });
    this.records.watch(signedIn ? shown.filter((source) => this.cells.get(source.id)?.player).map((source) => source.id) : []);
    this.none.hidden = this.sources.length > 0;
    this.sizes?.forEach((button, place) => button.setAttribute("aria-pressed", String(SIZES[place] === this.size)));
    this.layers?.forEach((button, place) => button.setAttribute("aria-pressed", String(this.choice.show[LAYERS[place]])));
    if (this.pager && this.where && this.back && this.forth) {
      this.pager.hidden = this.pages < 2;
      text(this.where, t("live.page", { page: this.page + 1, pages: this.pages }));
      this.back.disabled = this.page === 0;
      this.forth.disabled = this.page === this.pages - 1;
    }
    this.place();
  }

  // As many columns as make the pictures largest.
  place() {
    this.root.style.setProperty("--header", `${this.root.offsetTop}px`);
    const { clientWidth: width, clientHeight: height } = this.grid, n = Math.max(1, this.cells.size);
    let best = 1, largest = 0;
    for (let columns = 1; columns <= n; columns += 1) {
      const wide = Math.min(width / columns, (height / Math.ceil(n / columns)) * SHAPE);
      if (wide > largest + 0.5) [best, largest] = [columns, wide];
    }
    this.grid.style.setProperty("--columns", String(best));
    this.grid.style.setProperty("--rows", String(Math.ceil(n / best)));
  }

  close() {
    document.removeEventListener("visibilitychange", this.hidden);
    this.sight.disconnect();
    for (const cell of this.cells.values()) cell.close();
    this.cells.clear();
    this.videos.close();
    this.records.close();
    this.stills.close();
  }
}

/** @param {HTMLElement} root */
export function open(root) {
  const view = new LiveView(root);
  return {
    update: (/** @type {import("./index.js").State} */ state) => view.update(state), close: () => view.close(), everyMs: 2000,
  };
}
