// The live view: a grid of cameras that fills the screen, with what was found drawn over their video.

import { ago, make, text } from "../dom.js";
import { Overlay } from "../live/overlay.js";
import { MOST_S, Player } from "../live/player.js";
import { Records } from "../live/records.js";
import { Stills } from "../live/stills.js";
import { Videos } from "../live/videos.js";
import { stateWord } from "../condition.js";
import { nameOf } from "../names.js";
import { address } from "../router.js";
import { askToken, signedIn } from "../session.js";
import { SourceFilter } from "../source_filter.js";
import { t } from "../strings.js";
import { LayoutBar } from "./layouts.js";

const SIZES = [1, 4, 9, 16, 25];
const LAYERS = ["boxes", "labels", "trails", "shapes", "masks"];
const STORE = "streamkit.live";
const SHAPE = 16 / 9;
const LAG_DECAY = 0.98;
const NARROWEST = 150; // width of a picture below which the grid scrolls, as nothing on it could be recognized
const SAME_S = 0.004; // two times of one frame
const SPARSE = 0.2; // share of frames without a record of their own from which the picture waits for the next record
const STILL_MS = 3000; // without a new frame, after which a picture is not live any more
const STILL_GAPS = 3; // the same in usual times between two frames, for slow cameras
const LATE_FOR_MS = 3000; // for which all records must be late before the picture says so
const TICK_MS = 500;
const SEARCHED = 8; // cameras from which on there is a search
const SWIPE = 60; // pixels from which on a touch is a swipe
const PHONE = "(max-width: 34rem)"; // shows one camera at once unless the user chooses

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
    this.seen = false; // whether it is in the visible part of the grid
    this.updatedAt = 0;
    this.sparse = 0; // share of frames that have no record of their own
    /** @type {{ at: number, lag_s: number }[]} */
    this.lags = []; // of the latest records
    this.video = make("video", { playsinline: true, disablepictureinpicture: true });
    this.video.muted = true; // without it, a browser plays nothing by itself
    const name = nameOf(id);
    this.image = make("img", { alt: t("live.picture", { id: name }), hidden: true });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.overlay = new Overlay(this.canvas, view.records);
    this.hint = make("p", { class: "hint" });
    this.badge = make("span", { class: "badge" });
    this.mode = make("span", { class: "mode", hidden: true }, t("live.images"));
    this.late = make("span", { class: "late", hidden: true });
    this.full = make("button", { type: "button", class: "full", "aria-label": t("live.enlarge", { id: name }), onclick: () => this.enlarge() });
    this.heading = make("h3", { title: id }, name);
    this.element = make("li", { class: "cell", "data-source": id, ondblclick: () => this.enlarge() },
      this.image, this.video, this.canvas, this.hint,
      make("div", { class: "bar" }, this.heading, this.badge, this.mode, this.full), this.late);
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
    const record = this.draw();
    const apart = record && this.pts_s !== null && Math.abs(record.pts_s - this.pts_s) > SAME_S;
    this.sparse = 0.9 * this.sparse + (apart ? 0.1 : 0);
  }

  draw() {
    const { video } = this;
    const record = this.pictured && this.pts_s !== null ? this.view.records.at(this.id, this.pts_s) : null;
    if (record && (this.source?.state !== "running" || this.still_s)) record.objects = []; // they are not there any more
    this.canvas.dataset.frame = record?.fresh ? String(record.frame) : "";
    this.overlay.draw(record, { width: video.videoWidth, height: video.videoHeight }, this.view.choice.show);
    return record;
  }

  // A record has come: of the frame on the screen if records are late. The video is delayed as long as they need.
  /** @param {import("../live/records.js").FrameRecord} record */
  arrived(record) {
    const { player } = this;
    if (!player) return;
    const newest = player.newest_s;
    if (newest !== null) {
      const at = performance.now(), lag_s = newest - record.pts_s;
      player.lag_s = Math.max(lag_s, player.lag_s * LAG_DECAY);
      this.lags = [...this.lags.filter((lag) => lag.at > at - LATE_FOR_MS), { at, lag_s }];
    }
    player.ahead_s = this.sparse > SPARSE ? this.view.records.interval_s(this.id) ?? 0 : 0;
    if (this.pts_s !== null && Math.abs(record.pts_s - this.pts_s) < SAME_S) this.draw();
  }

  // By how much results come after their frames, in seconds; 0 where the picture can wait for them.
  get late_s() {
    const newest = this.view.records.newest(this.id);
    if (this.player?.state !== "playing" || this.pts_s === null || !newest) return 0;
    const missing_s = this.pts_s - newest.pts_s - (this.view.records.interval_s(this.id) ?? 0);
    const lag_s = this.lags.length > 1 ? Math.min(...this.lags.map((lag) => lag.lag_s)) : 0;
    const late_s = Math.max(lag_s, missing_s);
    return late_s > MOST_S ? late_s : 0;
  }

  // For how long there has been no new frame although one was due, in seconds; 0 while the picture moves.
  get still_s() {
    if (this.source?.state !== "running") return 0;
    const now = performance.now(), { player } = this, { quiet_s } = this.source;
    const quietNow_s = quiet_s === null ? 0 : quiet_s + (now - this.updatedAt) / 1000;
    if (player?.state !== "playing") return quietNow_s;
    const shown_ms = now - player.shownAt;
    return shown_ms > Math.max(STILL_MS, STILL_GAPS * player.gap_ms) ? Math.max(shown_ms / 1000, quietNow_s) : 0;
  }

  // Whether the video shows a picture: a new one, or the last one while no other comes.
  get pictured() {
    const { player } = this;
    return player !== null && (player.state === "playing" || (this.still_s > 0 && this.video.readyState >= 2));
  }

  // Says how old the picture and its results are.
  tick() {
    const { late_s } = this;
    if (late_s) text(this.late, t("live.late", { n: late_s < 10 ? late_s.toFixed(1) : Math.round(late_s) }));
    this.late.hidden = !late_s;
    this.show();
  }

  /**
   * @param {any} source
   * @param {string[]} hides the stages that hide objects
   */
  update(source, hides) {
    this.source = source;
    this.updatedAt = performance.now();
    if (signedIn && this.seen && source.packets && hides.length === 0) this.player ??= new Player(this.id, this.view.videos, this.video, (state, why) => this.changed(state, why));
    else this.stop();
    if (hides.length) this.reason = t("live.imagesHidden", { stages: hides.join(", ") });
    else if (!source.packets) this.reason = t("live.imagesOnly", { reason: t("live.noPackets") });
    else if (this.player?.state !== "refused") this.reason = "";
    text(this.heading, source.name);
    text(this.badge, stateWord(source));
    this.badge.className = `badge ${source.state}`;
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
    const { pictured, still_s } = this, live = this.source?.state === "running";
    this.element.classList.toggle("stale", !live || still_s > 0);
    this.video.hidden = !pictured;
    if (pictured || !signedIn) this.image.hidden = true;
    if (signedIn && live && this.seen && !pictured) this.view.stills.want(this.id, this.image);
    else this.view.stills.drop(this.id);
    this.mode.hidden = !this.reason || pictured;
    this.mode.title = this.reason;
    const hint = this.hintText(live, still_s, pictured || !this.image.hidden);
    text(this.hint, hint);
    this.hint.hidden = !hint;
    if (!pictured || !live || still_s) this.draw();
  }

  /**
   * @param {boolean} live
   * @param {number} still_s
   * @param {boolean} pictured whether there is a picture
   */
  hintText(live, still_s, pictured) {
    if (!signedIn) return t("live.signIn");
    if (!live) return this.source?.message ? `${this.source.state}. ${this.source.message}` : this.source?.state ?? "";
    if (still_s) return t("live.still", { time: ago(still_s) });
    return pictured ? "" : t("live.waiting");
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
  /**
   * @param {HTMLElement} root
   * @param {URLSearchParams} params
   */
  constructor(root, params) {
    this.choice = stored();
    this.phone = matchMedia(PHONE);
    /** @type {any[]} */
    this.all = []; // the sources of the pipeline, of which some are shown
    this.layouts = new LayoutBar(() => {
      this.choice.page = 0;
      this.filter.remember();
      this.arrange();
    }, () => [...this.cells.keys()]);
    this.filter = new SourceFilter("live", () => this.choose({ page: 0 }), { folds: true, further: () => this.layouts.params });
    this.filter.read(params);
    this.layouts.read(params);
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
    this.noMatch = make("p", { class: "empty", hidden: true }, t("filter.none"));
    /** @type {HTMLElement} */
    this.root = make("div", { class: "live" }, make("h2", { class: "unseen" }, t("live.title")), this.bar(), this.none, this.noMatch, this.grid);
    root.append(this.root);
    this.swipe();
    this.resizing = new ResizeObserver(() => this.place());
    this.resizing.observe(this.grid);
    this.sight = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const cell = this.cells.get(/** @type {HTMLElement} */ (target).dataset.source ?? "");
        if (cell?.element === target) cell.seen = isIntersecting || document.fullscreenElement === target;
      }
      this.arrange();
    }, { root: this.grid, rootMargin: "100px" });
    this.ticks = setInterval(() => this.cells.forEach((cell) => cell.tick()), TICK_MS);
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
    return make("div", { class: "tools" }, this.filter.element, this.layouts.element,
      make("div", { role: "group", class: "group", "aria-label": t("live.size") }, ...this.sizes), this.pager,
      make("div", { role: "group", class: "group", "aria-label": t("live.show") }, ...this.layers),
      make("button", { type: "button", class: "screen", onclick: () => this.root.requestFullscreen?.() }, t("live.fullscreen")));
  }

  // A swipe over the pictures changes the page, as on a phone, which shows one camera.
  swipe() {
    let from_x = 0;
    let from_y = 0;
    this.grid.addEventListener("touchstart", ({ touches: [touch] }) => {
      from_x = touch.clientX;
      from_y = touch.clientY;
    }, { passive: true });
    this.grid.addEventListener("touchend", ({ changedTouches: [touch] }) => {
      const right = touch.clientX - from_x;
      if (Math.abs(right) < SWIPE || Math.abs(right) < 2 * Math.abs(touch.clientY - from_y)) return;
      const page = this.page - Math.sign(right);
      if (page >= 0 && page < this.pages) this.choose({ page });
    }, { passive: true });
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
    const usual = this.phone.matches ? 1 : SIZES.find((n) => n >= this.sources.length) ?? SIZES[SIZES.length - 1];
    return this.layouts.layout?.size ?? this.choice.size ?? usual;
  }

  get pages() {
    return Math.max(1, Math.ceil(this.sources.length / this.size));
  }

  get page() {
    return Math.min(Math.max(0, this.choice.page), this.pages - 1);
  }

  /** @param {import("./index.js").State} state */
  update({ status, sources }) {
    this.all = sources;
    this.hides = status.hides ?? [];
    this.arrange();
  }

  // Finds the sources of the layout, or those that match the filter.
  select() {
    const { layout } = this.layouts;
    this.sources = layout ? this.layouts.members(layout, this.all) : this.filter.apply(this.all);
    this.filter.element.hidden = layout !== null || (this.all.length <= SEARCHED && !this.filter.active);
    this.none.hidden = this.all.length > 0;
    this.noMatch.hidden = this.all.length === 0 || this.sources.length > 0;
  }

  // Fills the grid with the sources of the page; what is not on the screen is not fetched.
  arrange() {
    this.select();
    const first = this.page * this.size;
    const shown = document.hidden ? [] : this.sources.slice(first, first + this.size);
    const ids = shown.map((source) => source.id);
    for (const [id, cell] of this.cells) {
      if (ids.includes(id)) continue;
      this.sight.unobserve(cell.element);
      cell.close();
      this.cells.delete(id);
    }
    shown.forEach((source, place) => {
      let cell = this.cells.get(source.id);
      if (!cell) {
        this.cells.set(source.id, cell = new Cell(source.id, this));
        this.sight.observe(cell.element);
      }
      if (this.grid.children[place] !== cell.element) this.grid.insertBefore(cell.element, this.grid.children[place] ?? null);
      cell.update(source, this.hides);
    });
    this.records.watch(signedIn ? shown.filter((source) => this.cells.get(source.id)?.player).map((source) => source.id) : []);
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

  // As many columns as make the pictures largest; where they would be too small, the grid scrolls.
  place() {
    this.root.style.setProperty("--header", `${this.root.offsetTop}px`);
    const { clientWidth: width, clientHeight: height } = this.grid, n = Math.max(1, this.cells.size);
    let best = 1, largest = 0;
    for (let columns = 1; columns <= n; columns += 1) {
      const wide = Math.min(width / columns, (height / Math.ceil(n / columns)) * SHAPE);
      if (wide > largest + 0.5) [best, largest] = [columns, wide];
    }
    const scrolls = largest < NARROWEST;
    if (scrolls) best = Math.max(1, Math.floor(width / NARROWEST));
    this.grid.classList.toggle("scrolls", scrolls);
    this.grid.style.setProperty("--row", `${Math.floor(width / best / SHAPE)}px`);
    this.grid.style.setProperty("--columns", String(best));
    this.grid.style.setProperty("--rows", String(Math.ceil(n / best)));
  }

  close() {
    document.removeEventListener("visibilitychange", this.hidden);
    clearInterval(this.ticks);
    this.resizing.disconnect();
    this.sight.disconnect();
    for (const cell of this.cells.values()) cell.close();
    this.cells.clear();
    this.layouts.close();
    this.videos.close();
    this.records.close();
    this.stills.close();
  }
}

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  const view = new LiveView(root, params);
  return {
    update: (/** @type {import("./index.js").State} */ state) => view.update(state), close: () => view.close(), everyMs: 2000,
  };
}
