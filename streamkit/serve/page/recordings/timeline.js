// The timelines of all cameras under each other: one axis, one playhead; zoom, pan, and dragging through the time.

import { make, svg, text } from "../dom.js";
import { t } from "../strings.js";
import { HIGH } from "./lane.js";
import { causeWords } from "./pane.js";
import { Period, axisTimes, axisWords, clockOf, momentWords } from "./period.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("./lane.js").LaneEvent} LaneEvent */

const TICK_WIDE = 84; // pixels between two times of the axis
const LABEL_WIDE = 58; // pixels of a time of the axis
const WHEEL = 1.0016; // zoom by a pixel of the wheel
const DRAG_FROM = 4; // pixels
const STEPS = 150; // steps of the arrow keys in the period

export class Timeline {
  /**
   * @param {Period} period
   * @param {{ scrub: (time_s: number, phase: "move" | "end", event: LaneEvent | null) => void, period: () => void }} on
   */
  constructor(period, on) {
    this.period = period;
    this.on = on;
    /** @type {Lane[]} */
    this.lanes = [];
    this.time_s = period.time(0.5);
    this.wide = 0;
    /** @type {Map<number, number>} */
    this.pointers = new Map(); // the x of each pointer that is down
    /** @type {{ x: number, moved: boolean, pans: boolean, period: Period } | null} */
    this.drag = null;
    this.axis = make("div", { class: "axis", "aria-hidden": "true" });
    this.track = make("div", { class: "track", role: "slider", tabindex: 0, "aria-label": t("recordings.timeline"), "aria-valuenow": 0 });
    this.head = make("div", { class: "playhead", "aria-hidden": "true" });
    this.cursor = make("div", { class: "cursor", "aria-hidden": "true", hidden: true });
    this.tip = make("output", { class: "tip", "aria-hidden": "true" });
    this.hatch = svg("svg", { class: "hatch", width: 0, height: 0, "aria-hidden": "true" }, svg("defs", {},
      svg("pattern", { id: "recordings-hatch", width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { width: 7, height: 7, class: "hatch-ground" }), svg("rect", { width: 2.2, height: 7, class: "hatch-line" }))));
    this.area = make("div", { class: "area" }, this.axis, this.track, this.cursor, this.head, this.tip);
    this.element = make("div", { class: "lanes" }, this.hatch, this.area);
    this.listen();
    this.resizing = new ResizeObserver(() => {
      this.wide = this.track.clientWidth;
      this.draw();
    });
    this.resizing.observe(this.track);
  }

  listen() {
    for (const area of [this.track, this.axis]) {
      area.addEventListener("pointerdown", (event) => this.down(event, area === this.axis));
      area.addEventListener("pointermove", (event) => this.move(event));
      area.addEventListener("pointerup", (event) => this.up(event));
      area.addEventListener("pointercancel", (event) => this.cancel(event));
    }
    this.track.addEventListener("pointerleave", () => this.leave());
    this.area.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.track.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {Lane[]} lanes */
  setLanes(lanes) {
    this.lanes = lanes;
    this.track.replaceChildren(...lanes.map(({ element }) => element));
    this.draw();
  }

  /** @param {Period} period */
  show(period) {
    this.period = period;
    this.draw();
    this.on.period();
  }

  /**
   * @param {number} factor below 1: closer
   * @param {number} [around_s]
   */
  zoom(factor, around_s) {
    const middle_s = around_s ?? (this.period.has(this.time_s) ? this.time_s : this.period.time(0.5));
    this.show(this.period.zoomed(factor, middle_s));
  }

  /**
   * Moves the period by a part of its length.
   * @param {number} share
   */
  pan(share) {
    this.show(this.period.moved(share * this.period.span_s));
  }

  draw() {
    if (!this.wide) return;
    const { step_s, times } = axisTimes(this.period, Math.max(2, Math.floor(this.wide / TICK_WIDE)));
    const room = 1 - LABEL_WIDE / this.wide;
    this.axis.replaceChildren(...times.filter((time_s) => this.period.share(time_s) < room).map((time_s) => {
      const mark = make("span", {}, axisWords(time_s, step_s));
      mark.style.left = `${this.period.share(time_s) * 100}%`;
      return mark;
    }));
    for (const lane of this.lanes) lane.draw(this.period, this.wide);
    this.element.style.setProperty("--lanes", `${this.lanes.length * HIGH}px`);
    this.setTime(this.time_s);
  }

  /** @param {number} time_s */
  setTime(time_s) {
    this.time_s = time_s;
    const { period } = this;
    this.head.hidden = !period.has(time_s);
    this.head.style.left = `${period.share(time_s) * 100}%`;
    const now = String(Math.round(time_s));
    if (this.track.getAttribute("aria-valuenow") === now && this.track.dataset.from === String(period.from_s)) return;
    this.track.dataset.from = String(period.from_s);
    this.track.dataset.to = String(period.to_s);
    this.track.setAttribute("aria-valuenow", now);
    this.track.setAttribute("aria-valuemin", String(Math.min(Math.round(period.from_s), Number(now))));
    this.track.setAttribute("aria-valuemax", String(Math.max(Math.round(period.to_s), Number(now))));
    this.track.setAttribute("aria-valuetext", [momentWords(time_s), ...this.lanes.map((lane) => this.laneWords(lane, time_s))].filter(Boolean).join("; "));
  }

  /**
   * @param {Lane} lane
   * @param {number} time_s
   */
  laneWords(lane, time_s) {
    const moment = lane.momentAt(time_s);
    if (!moment) return "";
    return t("recordings.laneNow", { id: lane.id, state: moment.recorded ? t("recordings.recorded") : causeWords(moment.cause) });
  }

  /** @param {number} clientX */
  timeAt(clientX) {
    const area = this.track.getBoundingClientRect();
    return this.period.time(Math.max(0, Math.min(1, (clientX - area.left) / area.width)));
  }

  get perPixel_s() {
    return this.period.span_s / Math.max(1, this.wide);
  }

  // ------------------------------------------------------------------------------------------------------ pointer

  /**
   * @param {PointerEvent} event
   * @param {boolean} pans whether dragging moves the period
   */
  down(event, pans) {
    if (event.button > 0) return;
    /** @type {HTMLElement} */ (event.currentTarget).setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, event.clientX);
    this.drag = { x: event.clientX, moved: false, pans: pans || event.shiftKey, period: this.period };
  }

  /** @param {PointerEvent} event */
  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (before === undefined) return this.hover(event);
    if (this.pointers.size === 2) return this.pinch(event);
    this.pointers.set(event.pointerId, event.clientX);
    const { drag } = this;
    if (!drag) return;
    if (Math.abs(event.clientX - drag.x) >= DRAG_FROM) drag.moved = true;
    if (!drag.moved) return;
    if (drag.pans) this.show(drag.period.moved((drag.x - event.clientX) * this.perPixel_s));
    else {
      this.on.scrub(this.timeAt(event.clientX), "move", null);
      this.hover(event);
    }
  }

  /**
   * Two fingers: their distance is the zoom.
   * @param {PointerEvent} event
   */
  pinch(event) {
    const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    const before = Math.abs((this.pointers.get(event.pointerId) ?? 0) - others[0]);
    this.pointers.set(event.pointerId, event.clientX);
    const after = Math.abs(event.clientX - others[0]);
    if (before > 8 && after > 8) this.zoom(before / after, this.timeAt((event.clientX + others[0]) / 2));
    this.endDrag();
  }

  /**
   * The browser has taken the gesture, to scroll the page: the pictures stay where they are.
   * @param {PointerEvent} event
   */
  cancel(event) {
    this.pointers.delete(event.pointerId);
    this.endDrag();
  }

  endDrag() {
    if (this.drag?.moved && !this.drag.pans) this.on.scrub(this.time_s, "end", null);
    this.drag = null;
  }

  /** @param {PointerEvent} event */
  up(event) {
    this.pointers.delete(event.pointerId);
    const { drag } = this;
    this.drag = null;
    if (!drag || drag.pans) return;
    const time_s = this.timeAt(event.clientX);
    const near = drag.moved ? null : this.eventUnder(event);
    this.on.scrub(near?.time_s ?? time_s, "end", near);
  }

  /** @param {PointerEvent} event */
  laneUnder(event) {
    return this.lanes.find(({ element }) => {
      const { top, bottom } = element.getBoundingClientRect();
      return top <= event.clientY && event.clientY < bottom;
    });
  }

  /** @param {PointerEvent} event */
  eventUnder(event) {
    return this.laneUnder(event)?.eventNear(this.timeAt(event.clientX), this.perPixel_s) ?? null;
  }

  /** @param {PointerEvent} event */
  hover(event) {
    if (event.currentTarget === this.axis) return;
    const time_s = this.timeAt(event.clientX);
    const lane = this.laneUnder(event);
    const near = lane?.eventNear(time_s, this.perPixel_s);
    const moment = lane?.momentAt(time_s);
    const state = near ? near.text : moment && !moment.recorded ? causeWords(moment.cause) : "";
    text(this.tip, [this.period.span_s > 43200 ? momentWords(time_s) : clockOf(time_s), state].filter(Boolean).join(" · "));
    const x = this.period.share(time_s) * this.wide;
    this.cursor.hidden = false;
    this.cursor.style.left = `${x}px`;
    this.tip.style.left = `${x}px`;
    this.tip.classList.toggle("left", x > this.wide / 2);
    this.track.classList.toggle("on-event", Boolean(near));
  }

  leave() {
    this.cursor.hidden = true;
    text(this.tip, "");
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    event.preventDefault();
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      this.show(this.period.moved(sideways * this.perPixel_s));
      return;
    }
    const pixels = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? event.deltaY * 24 : event.deltaY;
    this.zoom(WHEEL ** pixels, this.timeAt(event.clientX));
  }

  // ----------------------------------------------------------------------------------------------------- keyboard

  /** @param {KeyboardEvent} event */
  key(event) {
    const { period, time_s } = this;
    const step_s = Math.max(1, Math.round(period.span_s / STEPS));
    /** @type {Record<string, number>} */
    const targets = {
      ArrowLeft: time_s - step_s, ArrowRight: time_s + step_s, ArrowDown: time_s - step_s, ArrowUp: time_s + step_s,
      PageUp: time_s + period.span_s / 4, PageDown: time_s - period.span_s / 4, Home: period.from_s, End: period.to_s,
    };
    const target_s = targets[event.key];
    if (target_s === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (event.shiftKey && event.key.startsWith("Arrow")) this.pan(target_s > time_s ? 0.25 : -0.25);
    else this.on.scrub(target_s, "end", null);
  }

  close() {
    this.resizing.disconnect();
  }
}
