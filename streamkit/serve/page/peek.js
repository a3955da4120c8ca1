// A picture of a camera beside its tile, while the pointer or the focus is on it.

import { get, path } from "./api.js";
import { problemText, stateWord } from "./condition.js";
import { make, text } from "./dom.js";
import { signedIn } from "./session.js";
import { t } from "./strings.js";

/** @typedef {import("./types").SourceView} SourceView */

const SOON_MS = 220; // a pointer that only passes shows nothing
const GAP = 6;

export class Peek {
  /** @param {HTMLElement} element that is shown over the page */
  constructor(element) {
    this.element = element;
    /** @type {number | undefined} */
    this.timer = undefined;
    this.turn = 0;
    this.image = make("img", { alt: "", hidden: true });
    this.name = make("strong");
    this.words = make("span");
    element.append(this.image, this.name, this.words);
  }

  /**
   * Shows the picture of a source while its tile has the pointer or the focus.
   * @param {HTMLElement} tile
   * @param {() => SourceView | null} source
   */
  follow(tile, source) {
    const begin = () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.show(tile, source()), SOON_MS);
    };
    tile.addEventListener("pointerenter", (event) => { if (event.pointerType === "mouse") begin(); });
    tile.addEventListener("pointerleave", () => this.hide());
    tile.addEventListener("focus", () => { if (tile.matches(":focus-visible")) begin(); });
    tile.addEventListener("blur", () => this.hide());
  }

  /**
   * @param {HTMLElement} tile
   * @param {SourceView | null} source
   */
  async show(tile, source) {
    if (!source || !tile.isConnected) return;
    const turn = this.turn += 1;
    text(this.name, source.name);
    const words = source.state === "running" && !source.quiet_s ? t("overview.rate", { n: source.fps.toFixed(1) }) : problemText(source);
    text(this.words, [stateWord(source), words, source.site].filter(Boolean).join(" · "));
    this.image.hidden = true;
    this.place(tile);
    if (!signedIn || source.state !== "running") return;
    try {
      const url = URL.createObjectURL(await get(path(source.id, "/snapshot.jpg")));
      if (turn !== this.turn) return URL.revokeObjectURL(url);
      this.image.src = url;
      await this.image.decode();
      this.image.hidden = turn !== this.turn;
      if (turn === this.turn) this.place(tile);
    } catch { /* there is no picture: the words stay */ }
  }

  /** @param {HTMLElement} tile */
  place(tile) {
    const { element } = this, area = tile.getBoundingClientRect();
    element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = element;
    const below = area.bottom + GAP + height <= innerHeight;
    element.style.left = `${Math.max(GAP, Math.min(area.left, innerWidth - width - GAP))}px`;
    element.style.top = `${below ? area.bottom + GAP : Math.max(GAP, area.top - GAP - height)}px`;
  }

  hide() {
    clearTimeout(this.timer);
    this.turn += 1;
    this.element.hidden = true;
    if (this.image.src) URL.revokeObjectURL(this.image.src);
    this.image.removeAttribute("src");
  }
}
