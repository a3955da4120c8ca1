// Downloads a range of a camera's recording: two handles on the timeline, and a bar that says what comes.

import { Trouble, respond } from "../api.js";
import { make, say, text, why } from "../dom.js";
import { lost } from "../session.js";
import { t } from "../strings.js";
import { exportAddress } from "./archive.js";
import { lengthOf, momentWords } from "./period.js";

/** @typedef {import("./timeline.js").Timeline} Timeline */

const SHORTEST_S = 0.04;
const PIECE_BYTES = 32 * 2 ** 20; // the browser moves a Blob out of the page's memory
const STEPS = 150;

export class ExportRange {
  /**
   * @param {Timeline} timeline
   * @param {() => void} closed
   */
  constructor(timeline, closed) {
    this.timeline = timeline;
    this.closed = closed;
    this.from_s = 0;
    this.to_s = 0;
    /** @type {AbortController | null} */
    this.request = null;
    this.from = this.handle("from");
    this.to = this.handle("to");
    this.range = make("div", { class: "range", "aria-hidden": "true" });
    timeline.area.append(this.range, this.from, this.to);
    this.length = make("output", { class: "length" });
    this.camera = make("select", { id: "export-camera", "aria-label": t("recordings.export.camera") });
    this.exact = make("select", { id: "export-exact", "aria-label": t("recordings.export.cut") },
      make("option", { value: "false" }, t("recordings.export.asItIs")), make("option", { value: "true" }, t("recordings.export.exact")));
    this.exact.title = t("recordings.export.about");
    this.download = make("button", { type: "button", class: "primary", onclick: () => this.start() }, t("recordings.export.download"));
    this.cancel = make("button", { type: "button", onclick: () => this.end() }, t("page.cancel"));
    this.state = make("p", { class: "export-state", role: "status" });
    this.element = make("div", { class: "export", role: "group", "aria-label": t("recordings.export"), hidden: true },
      this.length, this.camera, this.exact, this.download, this.cancel, this.state);
    this.place();
  }

  get open() {
    return !this.element.hidden;
  }

  /** @param {"from" | "to"} end */
  handle(end) {
    const handle = make("div", { class: `handle ${end}`, role: "slider", tabindex: 0, hidden: true,
      "aria-label": t(`recordings.export.${end}`), "aria-valuenow": 0,
      onpointerdown: (event) => {
        handle.setPointerCapture(event.pointerId);
        event.stopPropagation();
      },
      onpointermove: (event) => {
        if (handle.hasPointerCapture(event.pointerId)) this.set(end, this.timeline.timeAt(event.clientX));
      },
      onkeydown: (event) => this.key(event, end) });
    return handle;
  }

  /**
   * @param {KeyboardEvent} event
   * @param {"from" | "to"} end
   */
  key(event, end) {
    const span_s = this.timeline.period.span_s;
    const step_s = event.shiftKey ? 0.04 : Math.max(0.2, span_s / STEPS);
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -step_s, ArrowDown: -step_s, ArrowRight: step_s, ArrowUp: step_s, PageUp: span_s / 10, PageDown: -span_s / 10 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    event.stopPropagation();
    this.set(end, (end === "from" ? this.from_s : this.to_s) + steps[event.key]);
  }

  /**
   * @param {number} from_s
   * @param {number} to_s
   * @param {{ id: string, name: string }[]} cameras
   */
  begin(from_s, to_s, cameras) {
    this.setCameras(cameras);
    this.from_s = from_s;
    this.to_s = to_s;
    this.element.hidden = false;
    text(this.state, "");
    this.place();
  }

  /** @param {{ id: string, name: string }[]} cameras */
  setCameras(cameras) {
    const chosen = this.camera.value;
    this.camera.replaceChildren(...cameras.map(({ id, name }) => make("option", { value: id }, name)));
    if (cameras.some(({ id }) => id === chosen)) this.camera.value = chosen;
  }

  /**
   * @param {"from" | "to"} end
   * @param {number} time_s
   */
  set(end, time_s) {
    if (end === "from") this.from_s = Math.min(time_s, this.to_s - SHORTEST_S);
    else this.to_s = Math.max(time_s, this.from_s + SHORTEST_S);
    this.place();
  }

  place() {
    const { period } = this.timeline;
    for (const [handle, time_s] of /** @type {[HTMLElement, number][]} */ ([[this.from, this.from_s], [this.to, this.to_s]])) {
      handle.hidden = !this.open;
      const share = period.share(time_s);
      handle.style.left = `${Math.max(0, Math.min(1, share)) * 100}%`;
      handle.classList.toggle("outside", share < 0 || share > 1);
      const now = Math.round(time_s * 10) / 10;
      handle.setAttribute("aria-valuenow", String(now));
      handle.setAttribute("aria-valuemin", String(Math.min(now, Math.round(period.from_s))));
      handle.setAttribute("aria-valuemax", String(Math.max(now, Math.round(period.to_s))));
      handle.setAttribute("aria-valuetext", momentWords(time_s));
    }
    const left = Math.max(0, Math.min(1, period.share(this.from_s)));
    this.range.hidden = !this.open;
    this.range.style.left = `${left * 100}%`;
    this.range.style.width = `${(Math.max(0, Math.min(1, period.share(this.to_s))) - left) * 100}%`;
    text(this.length, t("recordings.export.length", { from: momentWords(this.from_s), to: momentWords(this.to_s), length: lengthOf(this.to_s - this.from_s) }));
  }

  async start() {
    const request = this.request = new AbortController();
    const source = this.camera.value;
    this.download.disabled = true;
    text(this.state, t("recordings.export.begun"));
    try {
      const answer = await respond(exportAddress(source, this.from_s, this.to_s, this.exact.value === "true"), { signal: request.signal });
      const video = await this.receive(answer);
      const url = URL.createObjectURL(video);
      const link = make("a", { href: url, download: fileName(answer, source, this.from_s) });
      document.body.append(link);
      link.click();
      link.remove();
      setTimeout(() => URL.revokeObjectURL(url), 60_000);
      text(this.state, t("recordings.export.done", { size: megabytes(video.size) }));
    } catch (trouble) {
      if (request.signal.aborted) return;
      if (trouble instanceof Trouble && trouble.status === 401) lost();
      text(this.state, t("recordings.export.failed", { reason: why(trouble) }));
      say(t("recordings.export.failed", { reason: why(trouble) }));
    } finally {
      if (this.request === request) {
        this.request = null;
        this.download.disabled = false;
      }
    }
  }

  /** @param {Response} answer */
  async receive(answer) {
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    /** @type {Blob[]} */
    const pieces = [];
    /** @type {Uint8Array[]} */
    let waiting = [];
    let piece_bytes = 0;
    let bytes = 0;
    for (;;) {
      const { done, value: chunk } = await reader.read();
      if (chunk) {
        waiting.push(chunk);
        piece_bytes += chunk.byteLength;
        bytes += chunk.byteLength;
        text(this.state, t("recordings.export.receiving", { size: megabytes(bytes) }));
      }
      if (done || piece_bytes > PIECE_BYTES) {
        pieces.push(new Blob(/** @type {any} */ (waiting)));
        waiting = [];
        piece_bytes = 0;
      }
      if (done) return new Blob(pieces, { type: "video/mp4" });
    }
  }

  end() {
    this.request?.abort();
    this.request = null;
    this.download.disabled = false;
    this.element.hidden = true;
    this.place();
    this.closed();
  }
}

/** @param {number} bytes */
const megabytes = (bytes) => (bytes < 1e6 ? t("recordings.kilobytes", { n: Math.ceil(bytes / 1000) }) : t("recordings.megabytes", { n: (bytes / 1e6).toFixed(1) }));

/**
 * @param {Response} answer
 * @param {string} source
 * @param {number} from_s
 */
function fileName(answer, source, from_s) {
  const named = /filename="?([^";]+)"?/.exec(answer.headers.get("content-disposition") ?? "");
  return named?.[1] ?? `${source}-${new Date(from_s * 1000).toISOString().slice(0, 19)}.mp4`.replace(/[^A-Za-z0-9._-]+/g, "_");
}
