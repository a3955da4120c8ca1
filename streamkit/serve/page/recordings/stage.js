// The pictures of all cameras that are chosen: they follow one clock, and it waits for those that load.

import { make } from "../dom.js";
import { t } from "../strings.js";
import { Pane } from "./pane.js";
import { PlaybackClock } from "./playback_clock.js";

const LONGEST_WAIT_MS = 6000; // for a camera that loads; then the others go on
const SKIP_AFTER_MS = 1500; // of a gap of all cameras
const LAST_FRAME_S = 0.5; // before the end of a recording, where no frame follows
const SLOW_MS = 500; // loading that takes longer is shown

export class Stage {
  /**
   * @param {number} time_s
   * @param {{ skip: (to_s: number) => void, end: () => void }} on where no camera is recorded: until when, or indefinitely
   */
  constructor(time_s, on) {
    this.on = on;
    this.clock = new PlaybackClock(time_s);
    this.scrubbing = false;
    /** @type {Map<string, Pane>} */
    this.panes = new Map();
    /** @type {Map<Pane, number>} */
    this.waitsSince_ms = new Map();
    this.gapSince_ms = 0;
    this.element = make("ul", { class: "panes", "aria-label": t("recordings.pictures") });
  }

  /**
   * Shows these cameras, in this order; returns whether there were others.
   * @param {string[]} ids
   * @param {number} origin_s the wall time of the media time 0
   * @param {(id: string) => string} colorOf
   */
  choose(ids, origin_s, colorOf) {
    const before = [...this.panes.keys()].join("\n");
    for (const [id, pane] of this.panes) if (!ids.includes(id)) pane.close();
    this.panes = new Map(ids.map((id) => [id, this.panes.get(id) ?? new Pane(id, origin_s, colorOf(id))]));
    const changed = before !== ids.join("\n");
    if (changed) this.element.replaceChildren(...[...this.panes.values()].map(({ element }) => element));
    this.element.dataset.count = String(ids.length);
    return changed;
  }

  turn() {
    const panes = [...this.panes.values()], now_ms = performance.now();
    for (const pane of panes) {
      pane.follow(this.clock, this.scrubbing);
      if (pane.state !== "loading" && !pane.waits(this.clock)) this.waitsSince_ms.delete(pane);
      else if (!this.waitsSince_ms.has(pane)) this.waitsSince_ms.set(pane, now_ms);
      if (pane.state === "loading" && pane.hint.hidden && this.waited_ms(pane) > SLOW_MS) pane.show("loading", t("recordings.loading"));
    }
    if (!this.clock.playing) return;
    this.clock.hold(panes.some((pane) => pane.waits(this.clock) && this.waited_ms(pane) < LONGEST_WAIT_MS));
    this.skipGaps(panes);
  }

  /** @param {Pane} pane */
  waited_ms(pane) {
    const since_ms = this.waitsSince_ms.get(pane);
    return since_ms === undefined ? 0 : performance.now() - since_ms;
  }

  /** @param {Pane[]} panes */
  skipGaps(panes) {
    const now_ms = performance.now();
    if (!panes.length || panes.some(({ state }) => state !== "gap")) {
      this.gapSince_ms = 0;
      return;
    }
    this.gapSince_ms ||= now_ms;
    if (now_ms - this.gapSince_ms < SKIP_AFTER_MS) return;
    this.gapSince_ms = 0;
    const next_s = Math.min(...panes.map((pane) => pane.coverage.at(this.clock.time_s)?.to_s ?? Infinity));
    if (Number.isFinite(next_s)) this.on.skip(next_s);
    else this.on.end();
  }

  /** @param {number} time_s */
  seek(time_s) {
    this.clock.seek(time_s);
    for (const pane of this.panes.values()) pane.jump();
    this.waitsSince_ms.clear();
    this.turn();
  }

  /**
   * The time of a frame after or before the one that is shown, of the first camera that is recorded now; else the end of
   * the gap.
   * @param {1 | -1} by
   * @returns {Promise<number | null>}
   */
  async frameBeside(by) {
    const { time_s } = this.clock;
    const moments = [...this.panes.values()].flatMap((pane) => {
      const moment = pane.coverage.at(time_s);
      return moment ? [{ pane, moment }] : [];
    });
    const lead = moments.find(({ pane, moment }) => moment.recorded && !pane.refused) ?? moments[0];
    if (!lead) return null;
    const { pane, moment } = lead;
    const edge_s = by > 0 ? moment.to_s + 0.001 : moment.from_s - 0.001;
    if (!moment.recorded) return Number.isFinite(edge_s) ? edge_s : null;
    if (pane.refused) return time_s + by; // only its keyframes can be seen
    return await pane.player.neighbor(time_s, by) ?? (Math.abs(edge_s - time_s) < LAST_FRAME_S ? edge_s : null);
  }

  close() {
    for (const pane of this.panes.values()) pane.close();
    this.panes.clear();
  }
}
