// Plays a source's own video, a little behind the newest frame, and recovers from what may happen.

const LEAST_S = 0.12; // how far the picture is behind the newest fragment; less stalls at each late packet
export const MOST_S = 1.0; // how far it may be behind so that the records of slow pipelines come first
const SLACK_S = 0.12;
const KEPT_S = 8; // of what was shown; the browser has little memory for video
const AGAIN_MS = 1000, REFUSED_MS = 15000;
const EVERY_MS = 100, STALLED_MS = 6000; // without a new frame, after which images are shown in place of the video

/** @typedef {"waiting" | "playing" | "refused"} PlayerState */

export class Player {
  /**
   * @param {string} id
   * @param {import("./videos.js").Videos} videos
   * @param {HTMLVideoElement} video
   * @param {(state: PlayerState, reason: string) => void} changed called when the state changes
   */
  constructor(id, videos, video, changed) {
    this.id = id;
    this.videos = videos;
    this.video = video;
    this.changed = changed;
    /** @type {PlayerState} */
    this.state = "waiting";
    this.lag_s = 0; // by how much records come after their frames
    this.ahead_s = 0; // how far records must be ahead of the picture, so that boxes move from one to the next
    this.shownAt = performance.now(); // when the picture last changed
    this.gap_ms = 0; // the longest of the last times between two frames
    /** @type {import("./videos.js").Offset[]} */
    this.offsets = [];
    /** @type {SourceBuffer | null} */
    this.buffer = null;
    /** @type {Uint8Array[]} */
    this.queue = [];
    this.closed = false;
    this.stalled = 0;
    this.timer = setInterval(() => this.keepUp(), EVERY_MS);
    videos.want(id, this);
  }

  /** @param {Uint8Array} data */
  take(data) {
    this.queue.push(data);
    this.append();
  }

  /** @param {import("./videos.js").Told} message */
  told({ start, offset, error }) {
    if (error) this.refuse(error);
    else if (start) this.start(start.mime, start.offset_s);
    else if (offset) this.offsets.push(offset);
  }

  // The connection is lost, or could not be opened; it will be again.
  /** @param {boolean} opened */
  away(opened) {
    if (!opened) this.set("refused");
  }

  /** @param {string} reason */
  refuse(reason) {
    this.set("refused", reason);
    this.beginAgain(REFUSED_MS);
  }

  /** @param {number} wait_ms */
  beginAgain(wait_ms) {
    this.videos.drop(this.id);
    clearTimeout(this.again);
    this.again = setTimeout(() => this.videos.want(this.id, this), wait_ms);
  }

  /**
   * A new video begins, whose time starts at 0.
   * @param {string} mime
   * @param {number | null} offset_s
   */
  start(mime, offset_s) {
    if (!("MediaSource" in window) || !MediaSource.isTypeSupported(mime)) {
      this.refuse(mime);
      return;
    }
    this.offsets = offset_s === null ? [] : [{ from_s: -1, offset_s }];
    this.queue = [];
    this.buffer = null;
    const media = this.media = new MediaSource();
    media.addEventListener("sourceopen", () => {
      if (this.media !== media || media.readyState !== "open") return;
      URL.revokeObjectURL(this.video.src);
      const buffer = this.buffer = media.addSourceBuffer(mime);
      buffer.addEventListener("updateend", () => this.append());
      buffer.addEventListener("error", () => this.restart());
      this.append();
    }, { once: true });
    this.video.src = URL.createObjectURL(media);
    this.video.play().catch(() => {}); // keepUp tries again
  }

  append() {
    const { buffer, queue } = this;
    if (!buffer || buffer.updating || queue.length === 0) return;
    const whole = queue.length === 1 ? queue[0] : new Uint8Array(queue.reduce((sum, one) => sum + one.byteLength, 0));
    if (queue.length > 1) {
      let at = 0;
      for (const one of queue) {
        whole.set(one, at);
        at += one.byteLength;
      }
    }
    this.queue = [];
    try {
      buffer.appendBuffer(whole);
    } catch {
      this.restart();
    }
  }

  keepUp() {
    const { video, buffer } = this;
    if (!buffer || this.media?.readyState !== "open") return;
    const ranges = video.buffered;
    if (ranges.length === 0) return;
    const begin = ranges.start(ranges.length - 1), end = ranges.end(ranges.length - 1);
    const behind = end - video.currentTime, wanted = this.wanted_s;
    if (video.currentTime < begin || behind > wanted + 4 * SLACK_S) {
      video.currentTime = Math.max(begin, end - wanted);
      video.playbackRate = 1;
    } else {
      video.playbackRate = behind > wanted + SLACK_S ? 1.15 : behind < wanted / 2 ? 0.95 : 1;
    }
    if (video.paused) video.play().catch(() => {});
    if (video.error) this.restart();
    else if (!buffer.updating && video.currentTime - ranges.start(0) > 2 * KEPT_S) buffer.remove(0, video.currentTime - KEPT_S);
    this.stalled += 1;
    if (this.stalled * EVERY_MS > Math.max(STALLED_MS, 3 * this.gap_ms)) this.set("waiting");
  }

  get wanted_s() {
    return Math.min(MOST_S, Math.max(LEAST_S, this.lag_s + this.ahead_s + 0.05));
  }

  // A frame is on the screen; returns its time in records, or null while that is not known.
  /** @param {number} media_s */
  shown(media_s) {
    const now = performance.now();
    this.stalled = 0;
    this.gap_ms = Math.max(now - this.shownAt, 0.9 * this.gap_ms);
    this.shownAt = now;
    this.set("playing");
    const offset = this.offsets.filter(({ from_s }) => from_s <= media_s + 0.002).at(-1);
    return offset ? media_s + offset.offset_s : null;
  }

  // The time in records of the newest frame that has arrived, or null.
  get newest_s() {
    const ranges = this.video.buffered, last = this.offsets.at(-1);
    return ranges.length && last ? ranges.end(ranges.length - 1) + last.offset_s : null;
  }

  restart() {
    this.buffer = null;
    this.set("waiting");
    this.beginAgain(AGAIN_MS);
  }

  /**
   * @param {PlayerState} state
   * @param {string} reason
   */
  set(state, reason = "") {
    if (this.state === state || this.closed) return;
    this.state = state;
    this.changed(state, reason);
  }

  close() {
    this.closed = true;
    this.media = undefined;
    clearInterval(this.timer);
    clearTimeout(this.again);
    this.videos.drop(this.id);
    this.video.removeAttribute("src");
    this.video.load();
  }
}
