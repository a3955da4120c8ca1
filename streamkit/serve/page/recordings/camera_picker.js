// Chooses the cameras whose recordings are shown: a list with a search, which a button opens.

import { make, text } from "../dom.js";
import { t } from "../strings.js";

export const MAX_CAMERAS = 4;
const SEARCH_FROM = 8; // cameras

/** @typedef {{ id: string, name: string, group: string, recorded: boolean }} Camera */

export class CameraPicker {
  /** @param {(ids: string[]) => void} changed */
  constructor(changed) {
    this.changed = changed;
    /** @type {Camera[]} */
    this.cameras = [];
    /** @type {string[]} */
    this.chosen = [];
    this.count = make("span", { class: "count" });
    this.button = make("button", { type: "button", id: "recordings-cameras", "aria-expanded": "false", "aria-controls": "recordings-picker",
      onclick: () => this.toggle(this.box.hidden) }, t("recordings.cameras"), " ", this.count);
    this.search = make("input", { type: "search", "aria-label": t("recordings.search"), placeholder: t("recordings.search"), oninput: () => this.list() });
    this.rows = make("ul", { "aria-label": t("recordings.cameras") });
    this.about = make("p", { class: "help" });
    this.box = make("div", { id: "recordings-picker", class: "picker-box", hidden: true }, this.search, this.about, this.rows);
    this.element = make("div", { class: "picker" }, this.button, this.box);
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.box.hidden) return;
      event.stopPropagation();
      this.toggle(false);
      this.button.focus();
    });
    this.element.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget && !this.element.contains(/** @type {Node} */ (relatedTarget))) this.toggle(false);
    });
    this.outside = (/** @type {Event} */ event) => {
      if (!this.element.contains(/** @type {Node} */ (event.target))) this.toggle(false);
    };
    document.addEventListener("pointerdown", this.outside);
  }

  /** @param {boolean} open */
  toggle(open) {
    this.box.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (open) this.list();
  }

  /**
   * @param {Camera[]} cameras
   * @param {string[]} chosen
   */
  show(cameras, chosen) {
    const before = JSON.stringify([this.cameras, this.chosen]);
    this.cameras = cameras;
    this.chosen = chosen;
    text(this.count, t("recordings.chosen", { n: chosen.length, max: MAX_CAMERAS }));
    if (!this.box.hidden && JSON.stringify([cameras, chosen]) !== before) this.list();
  }

  list() {
    this.search.hidden = this.cameras.length < SEARCH_FROM;
    const words = this.search.value.toLowerCase().split(/\s+/);
    const matching = this.cameras.filter(({ id, name, group }) => words.every((word) => `${id} ${name} ${group}`.toLowerCase().includes(word)));
    const full = this.chosen.length >= MAX_CAMERAS;
    text(this.about, t("recordings.choose", { max: MAX_CAMERAS }));
    const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.camera;
    this.rows.replaceChildren(...matching.map((camera) => {
      const chosen = this.chosen.includes(camera.id);
      /** @type {HTMLInputElement} */
      const box = make("input", { type: "checkbox", "data-camera": camera.id, checked: chosen, disabled: !chosen && full, onchange: () => this.pick(camera.id, box.checked) });
      return make("li", {}, make("label", {}, box, make("span", {}, camera.name), make("small", {}, camera.recorded ? camera.group : t("recordings.none"))));
    }));
    if (focused) /** @type {HTMLElement | null} */ (this.rows.querySelector(`[data-camera="${CSS.escape(focused)}"]`))?.focus();
  }

  /**
   * @param {string} id
   * @param {boolean} chosen
   */
  pick(id, chosen) {
    this.chosen = chosen ? [...this.chosen, id].slice(0, MAX_CAMERAS) : this.chosen.filter((other) => other !== id);
    this.changed(this.chosen);
    this.list();
  }

  close() {
    document.removeEventListener("pointerdown", this.outside);
  }
}
