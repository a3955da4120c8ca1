// Plays a source's own video from its WebSocket, a little behind the newest frame, and recovers from what may happen.

import { path } from "../api.js";

const LEAST_S = 0.12; // how far the picture is behind the newest fragment; less stalls at each late packet
const MOST_S = 1.0; // how far it may be behind so that the records of slow pipelines come first
const SLACK_S = 0.12;
const KEPT_S = 8; // of what was shown; the browser has little memory for video
const AGAIN_MS = 1000, REFUSED_MS = 15000;

/** @typedef {"waiting" | "playing" | "refused"} PlayerState */

export class Player {
  /**
   * @param {string} id
   * @param {HTMLVideoElement} video
   * @param {(state: PlayerState, reason: string) => void} changed called when the state changes
   */
  constructor(id, video, changed) {
    this.id = id;
    this.video = video;
    this.changed = changed;
    /** @type {PlayerState} */
    this.state = "waiting";
    this.lag_s = 0; // by how much records come after their frames
    /** @type {{ from_s: number, offset_s: number }[]} */
    this.offsets = [];
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {SourceBuffer | null} */
    this.buffer = null;
    /** @type {ArrayBuffer[]} */
    this.queue = [];
    this.closed = false;
    this.stalled = 0;
    this.timer = setInterval(() => this.keepUp(), 100);
    this.connect();
  }

  connect() {
    const address = new URL(path(this.id, "/live.mp4"), location.href);
    address.protocol = address.protocol.replace("http", "ws");
    const socket = this.socket = new WebSocket(address);
    let opened = false;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { opened = true; };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") this.told(JSON.parse(data));
      else {
        this.queue.push(data);
        this.append();
      }
    };
    socket.onclose = () => {
      if (this.closed || this.socket !== socket) return;
      if (!opened) this.set("refused");
      this.again = setTimeout(() => this.connect(), this.state === "refused" ? REFUSED_MS : AGAIN_MS);
    };
  }

  /** @param {{ start?: { mime: string, offset_s: number | null }, offset?: { from_s: number, offset_s: number }, error?: string }} message */
  told({ start, offset, error }) {
    if (error) {
      this.set("refused", error);
      this.socket?.close();
    } else if (start) this.start(start.mime, start.offset_s);
    else if (offset) this.offsets.push(offset);
  }

  /**
   * A new video begins, whose time starts at 0.
   * @param {string} mime
   * @param {number | null} offset_s
   */
  start(mime, offset_s) {
    if (!("MediaSource" in window) || !MediaSource.isTypeSupported(mime)) {
      this.set("refused", mime);
      this.socket?.close();
      return;
    }
    this.offsets = offset_s === null ? [] : [{ from_s: -1, offset_s }];
    this.queue = [];
    this.buffer = null;
    const media = this.media = new MediaSource();
    media.addEventListener("sourceopen", () => {
      if (this.media !== media) return;
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
    if (whole instanceof Uint8Array) {
      let at = 0;
      for (const one of queue) {
        whole.set(new Uint8Array(one), at);
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
    if (this.stalled > 30) this.set("waiting");
  }

  get wanted_s() {
    return Math.min(MOST_S, Math.max(LEAST_S, this.lag_s + 0.05));
  }

  // A frame is on the screen; returns its time in records, or null while that is not known.
  /** @param {number} media_s */
  shown(media_s) {
    this.stalled = 0;
    this.set("playing");
    let found = null;
    for (const one of this.offsets) if (one.from_s <= media_s + 0.002) found = one.offset_s;
    return found === null ? null : media_s + found;
  }

  // The time in records of the newest frame that has arrived, or null.
  get newest_s() {
    const ranges = this.video.buffered, last = this.offsets.at(-1);
    return ranges.length && last ? ranges.end(ranges.length - 1) + last.offset_s : null;
  }

  restart() {
    this.buffer = null;
    this.set("waiting");
    this.socket?.close();
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
    clearInterval(this.timer);
    clearTimeout(this.again);
    this.socket?.close();
    this.video.removeAttribute("src");
    this.video.load();
  }
}
