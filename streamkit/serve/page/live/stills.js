// Images of sources whose video is not shown: a few at a time, as a browser opens six connections to a server.

import { get, path } from "../api.js";

const AT_ONCE = 3, EVERY_MS = 350, AFTER_ERROR_MS = 1500;

export class Stills {
  constructor() {
    /** @type {Map<string, { image: HTMLImageElement, next: number, busy: boolean }>} */
    this.wanted = new Map();
    this.busy = 0;
    this.timer = setInterval(() => this.look(), 60);
  }

  /**
   * Show images of a source from now on, until `drop`.
   * @param {string} id
   * @param {HTMLImageElement} image
   */
  want(id, image) {
    if (this.wanted.get(id)?.image !== image) this.wanted.set(id, { image, next: 0, busy: false });
  }

  /** @param {string} id */
  drop(id) {
    this.wanted.delete(id);
  }

  look() {
    if (document.hidden) return;
    const now = performance.now();
    const due = [...this.wanted].filter(([, one]) => !one.busy && one.next <= now).sort((a, b) => a[1].next - b[1].next);
    for (const [id, one] of due.slice(0, Math.max(0, AT_ONCE - this.busy))) this.fetch(id, one);
  }

  /**
   * @param {string} id
   * @param {{ image: HTMLImageElement, next: number, busy: boolean }} one
   */
  async fetch(id, one) {
    one.busy = true;
    this.busy += 1;
    let wait = EVERY_MS;
    try {
      const url = URL.createObjectURL(await get(path(id, "/snapshot.jpg")));
      const old = one.image.src;
      one.image.src = url;
      await one.image.decode();
      if (old) URL.revokeObjectURL(old);
      if (this.wanted.get(id) === one) one.image.hidden = false;
    } catch {
      wait = AFTER_ERROR_MS;
    }
    one.busy = false;
    this.busy -= 1;
    one.next = performance.now() + wait;
  }

  close() {
    clearInterval(this.timer);
    this.wanted.clear();
  }
}
