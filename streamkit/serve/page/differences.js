// Shows how the running pipeline differs from its YAML, with buttons that undo the changes or write them to the YAML.

import { call, get } from "./api.js";
import { confirmChanges } from "./changes.js";
import { make, say, text, why } from "./dom.js";
import { lost, may, signedIn } from "./session.js";
import { t } from "./strings.js";

const EVERY_MS = 5000; // between two looks at as many differences

export class Differences {
  /** @param {() => void} [written] called when the YAML has the changes */
  constructor(written = () => {}) {
    this.written = written;
    this.count = 0;
    this.looked = 0;
    this.hash = "";
    /** @type {string} */
    this.shown = "";
    this.list = make("ul", {});
    this.kept = make("p", { class: "help" });
    this.error = make("p", { class: "failed", role: "alert" });
    this.restore = make("button", { type: "button", title: t("differences.restoring"), onclick: () => this.order(() => this.undo()) }, t("differences.restore"));
    this.write = make("button", { type: "button", "data-needs": "admin", onclick: () => this.order(() => this.save()) }, t("differences.write"));
    this.element = make("section", { class: "differences", "aria-label": t("differences.title"), hidden: true },
      make("strong", {}, t("differences.title")), this.list, this.kept,
      make("div", { class: "buttons" }, this.restore, this.write), this.error);
  }

  /**
   * Looks at the differences while there are some.
   * @param {import("./types").Status} status
   */
  async update(status) {
    if (!status.differs || !signedIn || !may("operator")) {
      this.element.hidden = true;
      this.count = 0;
      return;
    }
    if (status.differs === this.count && Date.now() - this.looked < EVERY_MS) return;
    this.count = status.differs;
    this.looked = Date.now();
    try {
      this.show(await get("/api/v1/config/differences"));
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) lost();
    }
  }

  /** @param {import("./types").DifferencesView} view */
  show(view) {
    const shown = JSON.stringify(view);
    this.hash = view.hash;
    this.element.hidden = !view.differences.length;
    if (shown === this.shown) return;
    this.shown = shown;
    this.list.replaceChildren(...view.differences.map((one) => make("li", {}, one.text)));
    text(this.kept, t(view.kept ? "differences.kept" : "differences.lost"));
  }

  /** @param {() => Promise<void>} work */
  async order(work) {
    text(this.error, "");
    this.restore.disabled = this.write.disabled = true;
    try {
      await work();
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) lost();
      text(this.error, why(trouble));
    }
    this.restore.disabled = this.write.disabled = false;
  }

  async undo() {
    this.show(await call("POST", "/api/v1/config/differences/restore"));
    say(t("differences.restored"));
  }

  async save() {
    const send = (/** @type {boolean} */ dry) => call("POST", "/api/v1/config/differences/write", { hash: this.hash, dry_run: dry });
    const { name } = await get("/api/v1/config");
    if (!await confirmChanges(name, await send(true), () => send(false))) return;
    this.element.hidden = true;
    say(t("differences.written"));
    this.written();
  }
}
