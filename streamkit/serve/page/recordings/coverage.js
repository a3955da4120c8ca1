// What of a camera's time is recorded, around the moment that is played, and why the rest is not.

import { now_s } from "../clock.js";
import { recordedTimeline } from "./archive.js";

/** @typedef {import("./archive.js").Gap} Gap */
/** @typedef {{ from_s: number, to_s: number }} Stretch */
/** @typedef {{ recorded: boolean, from_s: number, to_s: number, cause: string }} Moment `to_s` is Infinity after the last recording */

const AROUND_S = 3600;
const MARGIN_S = 300; // how near the end of what is loaded may come before more is
const AGAIN_MS = 4000; // while the camera goes on recording
const JOIN_S = 0.5; // segments that are less apart are one stretch

/**
 * Segments without the bounds between them.
 * @param {Stretch[]} segments in order
 * @param {number} [join_s]
 * @returns {Stretch[]}
 */
export function stretches(segments, join_s = JOIN_S) {
  /** @type {Stretch[]} */
  const joined = [];
  for (const { from_s, to_s } of segments) {
    const last = joined[joined.length - 1];
    if (last && from_s - last.to_s <= join_s) last.to_s = Math.max(last.to_s, to_s);
    else joined.push({ from_s, to_s });
  }
  return joined;
}

/**
 * Whether a time is recorded, and from when to when it is or is not.
 * @param {{ stretches: Stretch[], gaps: Gap[] }} recorded
 * @param {number} time_s
 * @returns {Moment}
 */
export function momentOf(recorded, time_s) {
  let from_s = -Infinity;
  for (const stretch of recorded.stretches) {
    if (time_s < stretch.from_s) return gapOf(recorded.gaps, time_s, from_s, stretch.from_s);
    if (time_s < stretch.to_s) return { recorded: true, ...stretch, cause: "" };
    from_s = stretch.to_s;
  }
  return gapOf(recorded.gaps, time_s, from_s, Infinity);
}

/**
 * @param {Gap[]} gaps
 * @param {number} time_s
 * @param {number} from_s
 * @param {number} to_s
 * @returns {Moment}
 */
function gapOf(gaps, time_s, from_s, to_s) {
  const gap = gaps.find((candidate) => candidate.from_s <= time_s && time_s < candidate.to_s);
  return { recorded: false, from_s, to_s, cause: gap?.cause ?? "not recorded" };
}

export class Coverage {
  /**
   * @param {string} source
   * @param {(trouble: unknown) => void} failed
   */
  constructor(source, failed) {
    this.source = source;
    this.failed = failed;
    /** @type {{ stretches: Stretch[], gaps: Gap[] }} */
    this.recorded = { stretches: [], gaps: [] };
    this.from_s = 0;
    this.to_s = 0;
    this.loadedAt_ms = -Infinity;
    /** @type {AbortController | null} */
    this.request = null;
  }

  /**
   * What is recorded at a time; null while that is not loaded.
   * @param {number} time_s
   * @returns {Moment | null}
   */
  at(time_s) {
    const inside = this.from_s <= time_s && time_s < this.to_s;
    const near = time_s < this.from_s + MARGIN_S || time_s > this.to_s - MARGIN_S;
    const last = this.recorded.stretches[this.recorded.stretches.length - 1];
    const growing = this.to_s > now_s() && (!last || time_s > last.to_s - 10) && performance.now() - this.loadedAt_ms > AGAIN_MS;
    if (!inside || near || growing) this.load(time_s);
    return inside ? momentOf(this.recorded, time_s) : null;
  }

  /** @param {number} time_s */
  async load(time_s) {
    if (this.request) return;
    if (performance.now() - this.loadedAt_ms < AGAIN_MS / 4) return; // a server that refuses is not asked all the time
    const request = this.request = new AbortController();
    const from_s = Math.max(0, time_s - AROUND_S);
    const to_s = time_s + AROUND_S;
    this.loadedAt_ms = performance.now();
    try {
      const { segments, gaps } = await recordedTimeline(this.source, from_s, to_s, 1, request.signal);
      this.recorded = { stretches: stretches(segments), gaps };
      this.from_s = from_s;
      this.to_s = to_s;
    } catch (trouble) {
      if (!request.signal.aborted) this.failed(trouble);
    } finally {
      this.request = null;
    }
  }

  /** A jump to another time: what was asked for is of no use any more. */
  forget() {
    this.request?.abort();
    this.loadedAt_ms = -Infinity;
  }

  close() {
    this.request?.abort();
  }
}
