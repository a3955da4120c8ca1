// Shows the keyframe of the time that was asked for last: one request at a time, and none for times that are over.

import { keyframe } from "./archive.js";

const EVERY_MS = 80;
const STALE_MS = 600; // a request that takes longer is stopped when another time is wanted
const AFTER_ERROR_MS = 1500;

export class KeyframeImage {
  /**
   * @param {string} source
   * @param {HTMLImageElement} image
   * @param {(time_s: number) => void} shown receives the time of the keyframe
   * @param {(trouble: unknown) => void} failed
   */
  constructor(source, image, shown, failed) {
    this.source = source;
    this.image = image;
    this.shown = shown;
    this.failed = failed;
    /** @type {{ time_s: number, width: number } | null} */
    this.wanted = null;
    this.wantedTime_s = NaN;
    /** @type {AbortController | null} */
    this.request = null;
    this.requestedAt_ms = 0;
    this.next_ms = 0;
    this.timer = 0;
  }

  /**
   * @param {number} time_s
   * @param {number} width in pixels
   */
  show(time_s, width) {
    if (Math.abs(time_s - this.wantedTime_s) < 0.001) return;
    this.wantedTime_s = time_s;
    this.wanted = { time_s, width };
    if (this.request && performance.now() - this.requestedAt_ms > STALE_MS) this.request.abort();
    this.go();
  }

  go() {
    clearTimeout(this.timer);
    const { wanted } = this;
    if (!wanted || this.request) return;
    const wait_ms = this.next_ms - performance.now();
    if (wait_ms > 0) {
      this.timer = setTimeout(() => this.go(), wait_ms);
      return;
    }
    this.wanted = null;
    this.fetch(wanted.time_s, wanted.width);
  }

  /**
   * @param {number} time_s
   * @param {number} width
   */
  async fetch(time_s, width) {
    const request = this.request = new AbortController();
    this.requestedAt_ms = performance.now();
    this.next_ms = performance.now() + EVERY_MS;
    try {
      const answer = await keyframe(this.source, time_s, width, request.signal);
      const url = URL.createObjectURL(answer.image);
      const before = this.image.src;
      this.image.src = url;
      await this.image.decode();
      if (before) URL.revokeObjectURL(before);
      if (!request.signal.aborted) this.shown(answer.time_s);
    } catch (trouble) {
      if (!request.signal.aborted) {
        this.next_ms = performance.now() + AFTER_ERROR_MS;
        this.failed(trouble);
      }
    } finally {
      if (this.request === request) this.request = null;
      this.go();
    }
  }

  /** Stops the request of a time that is not shown any more. */
  stop() {
    clearTimeout(this.timer);
    this.wanted = null;
    this.wantedTime_s = NaN;
    this.request?.abort();
    this.request = null;
  }

  close() {
    this.stop();
    if (this.image.src) URL.revokeObjectURL(this.image.src);
  }
}
