// One camera of the view: its video at the clock's time, keyframes where that cannot play, or the gap and its cause.

import { Trouble } from "../api.js";
import { make, text, why } from "../dom.js";
import { askToken, lost, signedIn } from "../session.js";
import { has, t } from "../strings.js";
import { Coverage } from "./coverage.js";
import { KeyframeImage } from "./keyframe_image.js";
import { clockOf, momentWords } from "./period.js";
import { RecordedPlayer } from "./recorded_player.js";

/** @typedef {import("./playback_clock.js").PlaybackClock} PlaybackClock */
/** @typedef {"video" | "images" | "gap" | "loading" | "failed"} PaneState */

export const FASTEST_VIDEO = 8; // above this speed, keyframes are shown
const WIDTHS = [320, 480, 640, 960, 1280]; // of images: few sizes, so that the server can keep them
const DAY_S = 86400;

/**
 * The cause of a gap in words.
 * @param {string} cause of the API
 */
export const causeWords = (cause) => {
  const key = `recordings.cause.${cause.replaceAll(" ", "_")}`;
  return has(key) ? t(key) : cause;
};

export class Pane {
  /**
   * @param {string} id
   * @param {number} origin_s the wall time of the media time 0
   * @param {string} color of the camera
   */
  constructor(id, origin_s, color) {
    this.id = id;
    /** @type {PaneState} */
    this.state = "loading";
    this.refused = ""; // the codec that this browser does not play
    this.trouble = "";
    this.shownKeyframe_s = NaN;
    this.video = make("video", { playsinline: true, disablepictureinpicture: true, preload: "auto", "aria-hidden": "true", tabindex: -1 });
    this.video.muted = true;
    this.image = make("img", { alt: "" });
    this.hint = make("p", { class: "hint" });
    this.swatch = make("span", { class: "swatch", "aria-hidden": "true" });
    this.swatch.style.setProperty("--camera", color);
    this.name = make("h3", {}, id);
    this.mode = make("span", { class: "mode", hidden: true });
    this.full = make("button", { type: "button", class: "full", "aria-label": t("recordings.enlarge", { id }), onclick: () => this.enlarge() });
    this.element = make("li", { class: "pane", "data-source": id, ondblclick: () => this.enlarge() },
      this.image, this.video, this.hint, make("div", { class: "bar" }, this.swatch, this.name, this.mode, this.full));
    this.hint.addEventListener("click", () => signedIn || askToken());
    const failed = (/** @type {unknown} */ trouble) => this.failed(trouble);
    this.coverage = new Coverage(id, failed);
    this.keyframes = new KeyframeImage(id, this.image, (time_s) => {
      this.shownKeyframe_s = time_s;
      this.trouble = "";
    }, failed);
    this.player = new RecordedPlayer(id, this.video, origin_s, this.coverage, {
      failed, refused: (mime) => { this.refused = mime; }, works: () => { this.trouble = ""; this.refused = ""; },
    });
  }

  /** @param {unknown} trouble */
  failed(trouble) {
    if (trouble instanceof Trouble && trouble.status === 401) lost();
    this.trouble = why(trouble);
  }

  /** @param {string} name */
  setName(name) {
    text(this.name, name);
    this.element.setAttribute("aria-label", name);
  }

  /**
   * Shows what the clock says.
   * @param {PlaybackClock} clock
   * @param {boolean} scrubbing while the user drags: keyframes, as they come at once
   */
  follow(clock, scrubbing) {
    const { time_s } = clock;
    const moment = signedIn ? this.coverage.at(time_s) : null;
    if (moment && !moment.recorded) {
      this.player.follow(time_s, clock.playing ? clock.speed : 0); // loads what comes after the gap
      this.keyframes.stop();
      this.show("gap", this.gapWords(moment, time_s));
    } else if (!moment) {
      this.show("loading", this.trouble || (signedIn ? "" : t("recordings.signIn")));
    } else if (scrubbing || clock.speed > FASTEST_VIDEO || this.refused) {
      if (!this.video.paused) this.video.pause();
      this.keyframes.show(time_s, this.imageWidth);
      this.show(this.trouble ? "failed" : "images", this.trouble);
    } else {
      this.keyframes.stop();
      this.player.follow(time_s, clock.rate);
      if (this.player.ready(time_s)) this.show("video", "");
      else this.show(this.trouble ? "failed" : "loading", this.trouble);
    }
  }

  /**
   * Whether all other cameras must wait for this one.
   * @param {PlaybackClock} clock
   */
  waits(clock) {
    if (!signedIn || this.trouble || this.refused || clock.speed > FASTEST_VIDEO) return false;
    const moment = this.coverage.at(clock.time_s);
    return moment === null || (moment.recorded && !this.player.ready(clock.time_s));
  }

  /**
   * @param {import("./coverage.js").Moment} moment
   * @param {number} time_s
   */
  gapWords(moment, time_s) {
    const cause = causeWords(moment.cause);
    if (Number.isFinite(moment.to_s)) {
      const far = moment.to_s - time_s > DAY_S / 2;
      return t("recordings.gapUntil", { cause, time: far ? momentWords(moment.to_s) : clockOf(moment.to_s) });
    }
    return t("recordings.gap", { cause });
  }

  /**
   * @param {PaneState} state
   * @param {string} words
   */
  show(state, words) {
    this.state = state;
    this.element.dataset.state = state;
    this.element.dataset.ready = String(state !== "loading");
    if (state === "video") {
      this.video.classList.remove("away");
      this.image.classList.add("away");
    } else if (state === "images") {
      this.image.classList.toggle("away", !this.image.src);
      this.video.classList.toggle("away", Boolean(this.image.src));
    } else if (state === "gap") { // what was seen before the gap is not what is there now
      this.video.classList.add("away");
      this.image.classList.add("away");
    }
    const mode = state !== "images" ? "" : t(this.refused ? "recordings.imagesOnly" : "recordings.keyframes");
    text(this.mode, mode);
    this.mode.title = this.refused ? t("recordings.notPlayed", { mime: this.refused }) : "";
    this.mode.hidden = !mode;
    text(this.hint, words);
    this.hint.hidden = !words;
  }

  get imageWidth() {
    const pixels = this.element.clientWidth * Math.min(2, devicePixelRatio);
    return WIDTHS.find((width) => width >= pixels) ?? WIDTHS[WIDTHS.length - 1];
  }

  /** The clock was set to another time. */
  jump() {
    this.trouble = "";
    this.coverage.forget();
    this.player.jump();
  }

  enlarge() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.element.requestFullscreen?.();
  }

  close() {
    this.player.close();
    this.keyframes.close();
    this.coverage.close();
    this.element.remove();
  }
}
