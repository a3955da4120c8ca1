// The controls below the pictures: play, steps, speed, the time in large digits, zoom and export.

import { make, svg, text } from "../dom.js";
import { t } from "../strings.js";
import { clockOf, dateOf, zoneOf } from "./period.js";

/** @typedef {"play" | "frameBack" | "frameForth" | "eventBack" | "eventForth" | "zoomIn" | "zoomOut" | "panBack" | "panForth" | "export" | "latest"} Action */

export const SPEEDS = [0.5, 1, 2, 4, 8, 16];
/** @type {Record<string, string>} */
const DRAWINGS = {
  play: "M7 4.500v15l12-7.500z", pause: "M7 5h3.500v14H7zM13.500 5H17v14h-3.500z", frameBack: "M8 5v14M19 5v14l-8-7z", frameForth: "M16 5v14M5 5v14l8-7z",
  eventBack: "M4 6v12M12 6v12l-7-6zM20 6v12l-7-6z", eventForth: "M20 6v12M12 6v12l7-6zM4 6v12l7-6z",
  zoomIn: "M5 12h14M12 5v14", zoomOut: "M5 12h14", panBack: "M14 6l-6 6 6 6", panForth: "M10 6l6 6-6 6", export: "M12 4v11M7 11l5 5 5-5M5 20h14",
};
/** @type {Record<string, string>} the keys of an action, as people name them */
const KEYS = {
  play: "Space", frameBack: ",", frameForth: ".", eventBack: "P", eventForth: "N", zoomIn: "+", zoomOut: "-", panBack: "Shift+Left", panForth: "Shift+Right", export: "X", latest: "L",
};
/** @type {Record<string, Action>} */
const ACTIONS = {
  " ": "play", k: "play", ",": "frameBack", ".": "frameForth", p: "eventBack", n: "eventForth", "+": "zoomIn", "=": "zoomIn", "-": "zoomOut", x: "export", l: "latest",
};

/**
 * The action of a key; undefined for others, and while the user writes.
 * @param {KeyboardEvent} event
 * @returns {Action | undefined}
 */
export function actionOf(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.altKey || event.metaKey || target.closest("input, select, textarea, dialog, .picker-box")) return undefined;
  if (event.key === " " && target.closest("button, a, [role=button]")) return undefined; // it presses that
  return ACTIONS[event.key.toLowerCase()];
}

/** @param {string} name */
const drawing = (name) => svg("svg", { class: `icon ${name}`, viewBox: "0 0 24 24", width: 20, height: 20, "aria-hidden": "true" }, svg("path", { d: DRAWINGS[name] }));

export class Transport {
  /**
   * @param {(action: Action) => void} act
   * @param {(speed: number) => void} speed
   */
  constructor(act, speed) {
    /** @type {(action: Action) => HTMLButtonElement} */
    const button = (action) => make("button", { type: "button", class: `act ${action}`, "aria-label": t(`recordings.${action}`), title: t("recordings.withKey", { action: t(`recordings.${action}`), key: KEYS[action] }),
      onclick: () => act(action) }, drawing(action));
    this.play = button("play");
    this.play.append(drawing("pause"));
    this.exports = button("export");
    this.exports.append(make("span", {}, t("recordings.export")));
    /** @type {HTMLSelectElement} */
    this.speed = make("select", { "aria-label": t("recordings.speed"), onchange: () => speed(Number(this.speed.value)) },
      ...SPEEDS.map((factor) => make("option", { value: factor }, t("recordings.times", { n: factor }))));
    this.speed.value = "1";
    this.clock = make("time", { class: "clock" });
    this.date = make("span", { class: "date" });
    this.note = make("p", { class: "note", role: "status" });
    this.span = make("span", { class: "span" });
    this.element = make("div", { class: "transport", role: "group", "aria-label": t("recordings.controls") },
      make("div", { class: "group steps" }, button("eventBack"), button("frameBack"), this.play, button("frameForth"), button("eventForth"), this.speed),
      make("div", { class: "now" }, this.clock, this.date), this.note,
      make("div", { class: "group zoom" }, button("panBack"), button("zoomOut"), this.span, button("zoomIn"), button("panForth"), this.exports));
    this.shown = "";
  }

  /** @param {number} time_s */
  setTime(time_s) {
    const tenth = Math.floor((time_s % 1) * 10 + 1e-6);
    const words = `${clockOf(time_s)}.${tenth}`;
    this.clock.dateTime = new Date(time_s * 1000).toISOString();
    if (words === this.shown) return;
    this.shown = words;
    this.clock.replaceChildren(clockOf(time_s), make("small", {}, `.${tenth}`));
    text(this.date, `${dateOf(time_s)} ${zoneOf(time_s)}`);
  }

  /** @param {boolean} playing */
  setPlaying(playing) {
    this.play.classList.toggle("playing", playing);
    this.play.setAttribute("aria-label", t(playing ? "recordings.pause" : "recordings.play"));
  }

  /**
   * @param {string} words
   * @param {...(Node | string)} more
   */
  say(words, ...more) {
    this.note.replaceChildren(words, ...more);
    this.note.title = words;
  }
}
