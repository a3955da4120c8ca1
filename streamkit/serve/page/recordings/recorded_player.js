// Plays a camera's recording as the clock says: loads what is near, seeks, and corrects small differences by speed.

import { recordedVideo } from "./archive.js";
import { frameTimes } from "./fragments.js";

/** @typedef {{ from_s: number, to_s: number, frames_s: number[] }} Chunk a video that was loaded, and the times of its frames */
/** @typedef {{ buffer: ArrayBuffer, mime: string, offset_s: number, chunk: Chunk }} Appending */

const DURATION_S = 1000 * 86400; // of the media timeline, whose 0 is `origin_s`
const CHUNK_S = 10; // of a request, at normal speed
const LONGEST_CHUNK_S = 55; // the server sends at most 60 s a request
const AHEAD_S = 8;
const KEPT_S = 40; // of what was shown; a browser has little memory for video
const APART_S = 0.12; // buffered ranges that are less apart are one
const FAR_S = 0.35; // a larger difference from the clock is corrected by a seek, a smaller one by speed
const AGAIN_MS = 2000;
const STEP_S = 0.001; // into a frame, so that rounding does not show the one before
const FASTEST = 16; // which browsers play

export class RecordedPlayer {
  /**
   * @param {string} source
   * @param {HTMLVideoElement} video
   * @param {number} origin_s the wall time of the media time 0
   * @param {import("./coverage.js").Coverage} coverage
   * @param {{ failed: (trouble: unknown) => void, refused: (mime: string) => void, works: () => void }} on `refused`: the browser cannot play it
   */
  constructor(source, video, origin_s, coverage, on) {
    this.source = source;
    this.video = video;
    this.origin_s = origin_s;
    this.coverage = coverage;
    this.on = on;
    /** @type {Chunk[]} */
    this.chunks = [];
    /** @type {Appending[]} */
    this.appending = [];
    /** @type {SourceBuffer | null} */
    this.buffer = null;
    this.mime = "";
    /** @type {{ from_s: number, to_s: number, abort: AbortController } | null} */
    this.request = null;
    this.next_ms = 0; // not to ask a server that refuses all the time
    this.seeked_s = NaN;
    this.closed = false;
    this.open();
  }

  open() {
    this.chunks = [];
    this.appending = [];
    this.buffer = null;
    this.mime = "";
    this.seeked_s = NaN;
    if (!("MediaSource" in window)) return;
    const media = this.media = new MediaSource();
    media.addEventListener("sourceopen", () => {
      if (this.media !== media) return;
      URL.revokeObjectURL(this.video.src);
      media.duration = DURATION_S;
      this.append();
    }, { once: true });
    this.video.src = URL.createObjectURL(media);
  }

  /**
   * Shows a time, or goes on from it.
   * @param {number} time_s
   * @param {number} rate 0: it stands still
   */
  follow(time_s, rate) {
    const { video } = this;
    if (this.closed) return;
    if (video.error) this.open();
    const moment = this.coverage.at(time_s);
    if (!moment?.recorded) {
      if (!video.paused) video.pause();
      if (moment && rate && moment.to_s - time_s < 3 * rate) this.need(moment.to_s + STEP_S, 0); // it rejoins soon
      return;
    }
    this.need(time_s, rate);
    if (!this.holds(time_s)) return;
    const target_s = time_s - this.origin_s;
    const drift_s = video.currentTime - target_s;
    if (rate === 0) {
      if (!video.paused) video.pause();
      if (this.seeked_s !== target_s) this.seek(target_s);
      return;
    }
    this.seeked_s = NaN;
    if (Math.abs(drift_s) > FAR_S * Math.max(1, rate)) {
      if (!video.seeking) video.currentTime = target_s + (video.paused ? 0 : 0.1 * rate);
    } else {
      const correction = Math.max(-0.2, Math.min(0.2, drift_s / Math.max(1, rate)));
      const wanted = Math.min(FASTEST, rate * (1 - (Math.abs(drift_s) < 0.015 * rate ? 0 : correction)));
      if (Math.abs(video.playbackRate - wanted) > 0.01 * rate) video.playbackRate = wanted;
    }
    if (video.paused) video.play().catch(() => {}); // the next turn tries again
  }

  /** @param {number} target_s */
  seek(target_s) {
    this.seeked_s = target_s;
    this.video.currentTime = target_s;
  }

  /**
   * Whether the picture of a time is on the screen, or will be without more data.
   * @param {number} time_s
   */
  ready(time_s) {
    const { video } = this;
    return this.holds(time_s) && !video.seeking && video.readyState >= 2 && Math.abs(video.currentTime - (time_s - this.origin_s)) < 2 * FAR_S * Math.max(1, video.playbackRate);
  }

  /**
   * Until when the video is loaded without a hole, as wall time; 0 if it is not.
   * @param {number} time_s
   */
  loadedUntil(time_s) {
    const ranges = this.video.buffered;
    const media_s = time_s - this.origin_s;
    let end_s = 0;
    for (let place = 0; place < ranges.length; place += 1) {
      const joins = end_s ? ranges.start(place) <= end_s + APART_S : ranges.start(place) <= media_s + STEP_S && media_s < ranges.end(place);
      if (joins) end_s = ranges.end(place);
    }
    return end_s ? end_s + this.origin_s : 0;
  }

  /** @param {number} time_s */
  holds(time_s) {
    return this.loadedUntil(time_s) > 0;
  }

  /**
   * Loads a time and what follows it.
   * @param {number} time_s
   * @param {number} rate
   */
  need(time_s, rate) {
    if (this.appending.length) return;
    const moment = this.coverage.at(time_s);
    if (!moment?.recorded) return;
    const until_s = this.loadedUntil(time_s);
    const from_s = until_s || time_s;
    if (until_s && until_s >= Math.min(moment.to_s - APART_S, time_s + AHEAD_S * Math.max(1, rate))) return;
    const length_s = Math.min(LONGEST_CHUNK_S, CHUNK_S * Math.max(1, rate));
    this.load(from_s, Math.min(moment.to_s, from_s + length_s), !until_s);
  }

  /**
   * @param {number} from_s
   * @param {number} to_s
   * @param {boolean} urgent a request for another time is stopped
   * @returns {Promise<void>}
   */
  async load(from_s, to_s, urgent) {
    const { request: running } = this;
    if (running) {
      if (!urgent || (running.from_s <= from_s && from_s < running.to_s)) return;
      running.abort.abort();
    }
    if (performance.now() < this.next_ms && !running) return;
    const request = this.request = { from_s, to_s, abort: new AbortController() };
    try {
      const video = await recordedVideo(this.source, from_s, to_s, request.abort.signal);
      if (this.closed || request.abort.signal.aborted) return;
      if (!("MediaSource" in window) || !video.mime.includes("codecs") || !MediaSource.isTypeSupported(video.mime)) {
        this.next_ms = performance.now() + AGAIN_MS;
        this.on.refused(video.mime);
        return;
      }
      const frames_s = frameTimes(video.data).map((frame_s) => frame_s + video.start_s);
      const chunk = { from_s: video.start_s, to_s: video.end_s, frames_s };
      this.appending.push({ buffer: video.data, mime: video.mime, offset_s: video.start_s - this.origin_s, chunk });
      this.on.works();
      this.append();
    } catch (trouble) {
      if (request.abort.signal.aborted || this.closed) return;
      this.next_ms = performance.now() + AGAIN_MS;
      this.on.failed(trouble);
    } finally {
      if (this.request === request) this.request = null;
    }
  }

  append() {
    const { media } = this;
    const [next] = this.appending;
    if (!next || media?.readyState !== "open" || this.buffer?.updating) return;
    try {
      if (!this.buffer) {
        this.buffer = media.addSourceBuffer(next.mime);
        this.buffer.addEventListener("updateend", () => this.append());
      } else if (this.mime !== next.mime) {
        this.buffer.changeType(next.mime);
      }
      this.mime = next.mime;
      if (this.prune(next.chunk)) return; // goes on when that is done
      this.buffer.timestampOffset = next.offset_s;
      this.buffer.appendBuffer(next.buffer);
      this.chunks = [...this.chunks, next.chunk].sort((first, second) => first.from_s - second.from_s);
      this.appending.shift();
    } catch (trouble) {
      if (trouble instanceof DOMException && trouble.name === "QuotaExceededError" && this.video.buffered.length) {
        this.drop(0, Math.max(0.001, Math.min(this.video.currentTime, next.chunk.from_s - this.origin_s) - 2));
        return;
      }
      this.open();
    }
  }

  /**
   * Removes video that is far from the picture and from what comes next; returns whether it had to.
   * @param {Chunk} chunk
   */
  prune(chunk) {
    const { buffered } = this.video;
    const begin_s = Math.min(this.video.currentTime, chunk.from_s - this.origin_s) - KEPT_S;
    const end_s = Math.max(this.video.currentTime, chunk.to_s - this.origin_s) + LONGEST_CHUNK_S * FASTEST;
    if (!buffered.length) return false;
    if (buffered.start(0) < begin_s - KEPT_S) return this.drop(0, begin_s);
    if (buffered.end(buffered.length - 1) > end_s) return this.drop(end_s, DURATION_S);
    return false;
  }

  /**
   * @param {number} from_s media time
   * @param {number} to_s
   */
  drop(from_s, to_s) {
    this.chunks = this.chunks.filter((chunk) => chunk.to_s - this.origin_s <= from_s || chunk.from_s - this.origin_s >= to_s);
    this.buffer?.remove(from_s, to_s);
    return true;
  }

  /**
   * The time of the next frame after that of a time, or of the one before it.
   * @param {number} time_s
   * @param {1 | -1} by
   * @returns {Promise<number | null>} null if none is loaded, or where the recording ends
   */
  async neighbor(time_s, by) {
    for (let turn = 0; turn < 2; turn += 1) {
      const frames_s = [...new Set(this.chunks.flatMap((chunk) => (chunk.from_s < time_s + 5 && chunk.to_s > time_s - 5 ? chunk.frames_s : [])))]
        .sort((first, second) => first - second);
      const shown = frames_s.filter((frame_s) => frame_s <= time_s + STEP_S / 2).length - 1;
      const next_s = by > 0 ? frames_s.find((frame_s) => frame_s > (frames_s[shown] ?? time_s) + 2 * STEP_S)
        : frames_s.filter((frame_s) => frame_s < (frames_s[shown] ?? time_s) - 2 * STEP_S).pop();
      if (next_s !== undefined && shown >= 0 && this.loadedBetween(next_s, time_s)) return next_s + STEP_S;
      if (turn === 0) await this.extend(time_s, by);
    }
    return null;
  }

  /**
   * @param {number} first_s
   * @param {number} second_s
   */
  loadedBetween(first_s, second_s) {
    const from_s = Math.min(first_s, second_s);
    return this.loadedUntil(from_s + STEP_S) >= Math.max(first_s, second_s) - APART_S;
  }

  /**
   * Loads what is before or after a time, and waits for it.
   * @param {number} time_s
   * @param {1 | -1} by
   */
  async extend(time_s, by) {
    const moment = this.coverage.at(time_s);
    if (!moment?.recorded) return;
    const begin_s = this.chunks.reduce((first_s, chunk) => (chunk.from_s <= time_s && time_s < chunk.to_s ? Math.min(first_s, chunk.from_s) : first_s), time_s);
    const from_s = by > 0 ? this.loadedUntil(time_s) || time_s : Math.max(moment.from_s, begin_s - 0.5);
    const to_s = by > 0 ? Math.min(moment.to_s, from_s + CHUNK_S) : begin_s;
    if (to_s - from_s < STEP_S) return;
    await this.load(from_s, to_s, true);
    for (let turn = 0; turn < 40 && this.appending.length; turn += 1) await new Promise((done) => setTimeout(done, 25));
    for (let turn = 0; turn < 40 && this.buffer?.updating; turn += 1) await new Promise((done) => setTimeout(done, 25));
  }

  /** A jump: what is being loaded for another time is stopped. */
  jump() {
    this.next_ms = 0;
    this.seeked_s = NaN;
    if (this.request) this.request.abort.abort();
  }

  close() {
    this.closed = true;
    this.request?.abort.abort();
    this.media = undefined;
    this.video.removeAttribute("src");
    this.video.load();
  }
}
