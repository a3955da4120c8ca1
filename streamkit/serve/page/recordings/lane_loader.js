// Loads what the timelines show, with as much before and after it as is seen, and the events before and after a time.

import { get } from "../api.js";
import { recordedTimeline } from "./archive.js";
import { Period } from "./period.js";

/** @typedef {import("./lane.js").Lane} Lane */
/** @typedef {import("../types").EventView} EventView */

const SOON_MS = 120;
const BINS = 720;
const MAX_EVENTS = 400; // above which their numbers are drawn in place of each
const NEAREST_S = 0.05;
const LONGEST_SEARCH_S = 366 * 86400;

export class LaneLoader {
  /**
   * @param {() => void} loaded
   * @param {(trouble: unknown) => void} failed
   */
  constructor(loaded, failed) {
    this.loaded = loaded;
    this.failed = failed;
    this.timer = 0;
    /** @type {AbortController | null} */
    this.request = null;
  }

  /**
   * Loads the lanes for a period, unless another one is asked for soon.
   * @param {Lane[]} lanes
   * @param {Period} period
   */
  soon(lanes, period) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(lanes, period), SOON_MS);
  }

  /**
   * @param {Lane[]} lanes
   * @param {Period} shown
   */
  async load(lanes, shown) {
    this.request?.abort();
    const { signal } = this.request = new AbortController();
    const period = new Period(Math.max(0, shown.from_s - shown.span_s), shown.to_s + shown.span_s);
    await Promise.all(lanes.map(async (lane) => {
      try {
        const [timeline, events] = await Promise.all([recordedTimeline(lane.id, period.from_s, period.to_s, BINS, signal), eventsOf(lane.id, period)]);
        if (signal.aborted) return;
        lane.content = { period, timeline, events };
        this.loaded();
      } catch (trouble) {
        if (!signal.aborted) this.failed(trouble);
      }
    }));
  }

  close() {
    clearTimeout(this.timer);
    this.request?.abort();
  }
}

/**
 * @param {string} source
 * @param {number} from_s
 * @param {number} to_s
 * @param {number} limit
 * @returns {Promise<EventView[]>} newest first
 */
function eventsBetween(source, from_s, to_s, limit) {
  const query = new URLSearchParams({ source, from: from_s.toFixed(3), to: to_s.toFixed(3), limit: String(limit) });
  return get(`/api/v1/events?${query}`);
}

/**
 * @param {string} source
 * @param {Period} period
 * @returns {Promise<EventView[] | null>} null if they are too many
 */
async function eventsOf(source, period) {
  const events = await eventsBetween(source, period.from_s, period.to_s, MAX_EVENTS);
  return events.length < MAX_EVENTS ? events : null;
}

/**
 * The next event of a camera after a time, or the last one before it.
 * @param {string} source
 * @param {number} time_s
 * @param {1 | -1} by
 * @param {number} now_s
 * @returns {Promise<EventView | null>}
 */
export async function eventBeside(source, time_s, by, now_s) {
  if (by < 0) return (await eventsBetween(source, Math.max(0, time_s - LONGEST_SEARCH_S), time_s - NEAREST_S, 1))[0] ?? null;
  const from_s = time_s + NEAREST_S;
  let to_s = now_s + 1;
  while (to_s > from_s) { // the API lists the newest first: the period is halved until all of it fit
    const events = await eventsBetween(source, from_s, to_s, MAX_EVENTS);
    if (events.length < MAX_EVENTS) return events[events.length - 1] ?? null;
    to_s = to_s - from_s < 1 ? from_s : Math.min((from_s + to_s) / 2, events[events.length - 1].time_s);
  }
  return null;
}
