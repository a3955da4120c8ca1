// One camera of the timeline: what is recorded, the gaps, the motion and the events of a period.

import { make, svg } from "../dom.js";
import { causeWords } from "./pane.js";
import { momentOf, stretches } from "./coverage.js";

/** @typedef {import("./period.js").Period} Period */
/** @typedef {{ time_s: number, text: string, number: number, source: string }} LaneEvent */
/** @typedef {{ period: Period, timeline: import("./archive.js").RecordedTimeline, events: LaneEvent[] | null }} LaneContent `events`: null if they are too many, then their numbers are drawn */

export const HIGH = 44;
const MARK = 11; // height of the mark of an event
const NARROWEST = 0.8; // pixels of a stretch, which stays visible in a long period
const LABEL_FROM = 96; // pixels of a gap that has room for its cause
const NEAR = 5; // pixels
const STILL = 0.8; // of the smallest amount

/** @param {number} coordinate */
const px = (coordinate) => Math.round(coordinate * 10) / 10;

export class Lane {
  /**
   * @param {string} id
   * @param {string} color of the camera
   */
  constructor(id, color) {
    this.id = id;
    /** @type {LaneContent | null} */
    this.content = null;
    this.recorded = svg("path", { class: "recorded" });
    this.gaps = svg("path", { class: "gaps", fill: `url(#recordings-hatch)` });
    this.motion = svg("path", { class: "motion" });
    this.events = svg("path", { class: "marks" });
    this.causes = svg("g", { class: "causes" });
    this.drawing = svg("svg", { height: HIGH, "aria-hidden": "true" }, this.gaps, this.recorded, this.motion, this.events, this.causes);
    this.element = make("div", { class: "lane", "data-source": id }, this.drawing);
    this.element.style.setProperty("--camera", color);
  }

  /**
   * @param {Period} period that is shown
   * @param {number} wide in pixels
   */
  draw(period, wide) {
    const { content } = this;
    this.drawing.setAttribute("width", String(wide));
    this.drawing.setAttribute("viewBox", `0 0 ${wide} ${HIGH}`);
    if (!content || !wide) return;
    const x = (/** @type {number} */ time_s) => Math.max(-10, Math.min(wide + 10, period.share(time_s) * wide));
    const joined = stretches(content.timeline.segments, Math.max(0.5, (period.span_s / wide) * 0.7));
    this.drawStretches(joined, content.timeline.gaps, x);
    this.drawBins(content, x);
    this.drawEvents(content, x, wide);
  }

  /**
   * @param {import("./coverage.js").Stretch[]} joined
   * @param {import("./archive.js").Gap[]} gaps
   * @param {(time_s: number) => number} x
   */
  drawStretches(joined, gaps, x) {
    const box = (/** @type {number} */ from, /** @type {number} */ to) => `M${px(from)} 3H${px(Math.max(to, from + NARROWEST))}V${HIGH - 3}H${px(from)}Z`;
    this.recorded.setAttribute("d", joined.map(({ from_s, to_s }) => box(x(from_s), x(to_s))).join(""));
    this.gaps.setAttribute("d", gaps.map(({ from_s, to_s }) => box(x(from_s), x(to_s))).join(""));
    this.causes.replaceChildren(...gaps.filter((gap) => x(gap.to_s) - x(gap.from_s) >= LABEL_FROM).map((gap) => {
      const label = svg("text", { x: px((x(gap.from_s) + x(gap.to_s)) / 2), y: HIGH / 2 + 4, "text-anchor": "middle" });
      label.textContent = causeWords(gap.cause);
      return label;
    }));
  }

  /**
   * @param {LaneContent} content
   * @param {(time_s: number) => number} x
   */
  drawBins({ period, timeline: { motion } }, x) {
    const amounts = motion.filter((amount) => amount > 0);
    const still = Math.min(...amounts) * STILL; // a camera sends some bytes without motion too
    const largest = Math.max(...amounts) - still;
    const bin_s = period.span_s / Math.max(1, motion.length);
    this.motion.setAttribute("d", motion.map((amount, place) => {
      if (!(amount > 0)) return "";
      const from = x(period.from_s + place * bin_s);
      const to = x(period.from_s + (place + 1) * bin_s);
      if (to <= 0 || from === to) return "";
      const high = Math.max(1.5, ((amount - still) / largest) * (HIGH - MARK - 8));
      return `M${px(from)} ${HIGH - 3}V${px(HIGH - 3 - high)}H${px(Math.max(from + 1, to - 0.6))}V${HIGH - 3}Z`;
    }).join(""));
  }

  /**
   * @param {LaneContent} content
   * @param {(time_s: number) => number} x
   * @param {number} wide
   */
  drawEvents({ period, timeline, events }, x, wide) {
    const bin_s = period.span_s / Math.max(1, timeline.events.length);
    const times = events ? events.map(({ time_s }) => time_s)
      : timeline.events.flatMap((count, place) => (count > 0 ? [period.from_s + (place + 0.5) * bin_s] : []));
    const marks = times.map(x).filter((place) => place > -2 && place < wide + 2);
    this.events.setAttribute("d", marks.map((place) => `M${px(place - 1)} 3h2v${MARK}h-2z`).join(""));
  }

  /**
   * What is recorded at a time; null while that is not loaded.
   * @param {number} time_s
   */
  momentAt(time_s) {
    if (!this.content?.period.has(time_s)) return null;
    const { segments, gaps } = this.content.timeline;
    return momentOf({ stretches: stretches(segments), gaps }, time_s);
  }

  /**
   * The event under the pointer.
   * @param {number} time_s
   * @param {number} perPixel_s
   * @returns {LaneEvent | null}
   */
  eventNear(time_s, perPixel_s) {
    const distance = (/** @type {LaneEvent} */ event) => Math.abs(event.time_s - time_s);
    const near = (this.content?.events ?? []).filter((event) => distance(event) <= NEAR * perPixel_s);
    return near.sort((first, second) => distance(first) - distance(second))[0] ?? null;
  }
}
