// The sources that the user has selected, and what can be done with all of them at once.

import { call } from "../api.js";
import { make, say, text } from "../dom.js";
import { modal } from "../modal.js";
import { nameOf } from "../names.js";
import { t } from "../strings.js";

const PATIENCE_MS = 60000;

/** @typedef {import("../types").SourceView} SourceView */

export class Selection {
  constructor() {
    /** @type {Set<string>} */
    this.ids = new Set();
    /** @type {SourceView[]} */
    this.matching = [];
    /** @type {Map<string, HTMLInputElement>} */
    this.boxes = new Map();
    this.all = make("input", { type: "checkbox", "aria-label": t("bulk.selectAll"), onchange: () => this.selectAll() });
    this.count = make("strong");
    this.problem = make("p", { class: "error", role: "alert" });
    const button = (/** @type {string} */ key, /** @type {() => void} */ onclick) => make("button", { type: "button", class: "small", onclick }, t(key));
    this.download = make("a", { class: "button small", download: "sources.csv" }, t("bulk.export"));
    this.element = make("div", { class: "bulk", role: "group", "aria-label": t("bulk.actions"), "data-needs": "operator", hidden: true }, this.count,
      button("bulk.pause", () => this.act({ action: "pause" })), button("bulk.resume", () => this.act({ action: "resume" })),
      button("bulk.change", () => this.change()), this.download, button("bulk.none", () => this.clear()), this.problem);
  }

  /**
   * The checkbox of a source.
   * @param {string} id
   */
  box(id) {
    /** @type {HTMLInputElement} */
    const box = make("input", { type: "checkbox", onchange: () => {
      if (box.checked) this.ids.add(id);
      else this.ids.delete(id);
      this.show();
    } });
    box.checked = this.ids.has(id);
    this.boxes.set(id, box);
    return box;
  }

  /**
   * @param {SourceView[]} sources all of them
   * @param {SourceView[]} matching those that match the filter
   */
  update(sources, matching) {
    this.matching = matching;
    if (this.ids.size) {
      const present = new Set(sources.map(({ id }) => id));
      for (const id of this.ids) if (!present.has(id)) this.ids.delete(id);
    }
    this.show();
  }

  selectAll() {
    for (const { id } of this.matching) {
      if (this.all.checked) this.ids.add(id);
      else this.ids.delete(id);
    }
    this.show();
  }

  clear() {
    this.ids.clear();
    this.show();
    this.all.focus();
  }

  show() {
    const { ids, matching } = this, selected = matching.filter(({ id }) => ids.has(id)).length;
    for (const [id, box] of this.boxes) box.checked = ids.has(id);
    this.all.checked = selected > 0 && selected === matching.length;
    this.all.indeterminate = selected > 0 && selected < matching.length;
    this.element.hidden = ids.size === 0;
    text(this.count, t("bulk.count", { n: ids.size }));
    this.download.setAttribute("href", `/api/v1/sources.csv?${new URLSearchParams([...ids].map((id) => ["id", id]))}`);
  }

  /** @param {Record<string, any>} action */
  async send(action) {
    /** @type {import("../types").ActionResult} */
    const result = await call("POST", "/api/v1/source-actions", { ids: [...this.ids], ...action }, PATIENCE_MS);
    say(t("bulk.done", { n: result.done.length }));
    const problems = result.failed.slice(0, 5).map(({ id, problem }) => `${nameOf(id)}: ${problem}`).join("; ");
    text(this.problem, result.failed.length ? t("bulk.failed", { n: result.failed.length, problems }) : "");
  }

  /** @param {Record<string, any>} action */
  async act(action) {
    try {
      await this.send(action);
    } catch (trouble) {
      text(this.problem, trouble instanceof Error ? trouble.message : String(trouble));
    }
  }

  // Asks for the group, site and tags of the selected sources.
  change() {
    const field = (/** @type {string} */ name, /** @type {number} */ maxlength, /** @type {string} */ list = "") => make("input", {
      id: `bulk-${name}`, maxlength, autocomplete: "off", list: list || null });
    const group = field("group", 80, "bulk-groups"), site = field("site", 80, "bulk-sites"), added = field("add", 400), removed = field("remove", 400);
    const noGroup = make("input", { type: "checkbox", id: "bulk-no-group", onchange: () => { group.disabled = noGroup.checked; } });
    const known = (/** @type {string} */ id, /** @type {string[]} */ values) => make("datalist", { id },
      ...[...new Set(values)].filter(Boolean).map((value) => make("option", { value })));
    const tags = (/** @type {HTMLInputElement} */ input) => input.value.split(",").map((tag) => tag.trim()).filter(Boolean);
    modal({
      title: t("bulk.title", { n: this.ids.size }), save: t("bulk.save"), cancel: t("sources.cancel"),
      body: [make("p", { class: "help" }, t("bulk.about")),
        make("label", { for: group.id }, t("bulk.group")), group, known("bulk-groups", this.matching.map((source) => source.group)),
        make("div", { class: "check" }, noGroup, make("label", { for: noGroup.id }, t("bulk.noGroup"))),
        make("label", { for: site.id }, t("bulk.site")), site, known("bulk-sites", this.matching.map((source) => source.site)),
        make("label", { for: added.id }, t("bulk.addTags")), added, make("label", { for: removed.id }, t("bulk.removeTags")), removed,
        make("p", { class: "help" }, t("bulk.tagsHelp"))],
      submit: () => this.send({ action: "change", group: noGroup.checked ? "" : group.value.trim() || null, site: site.value.trim() || null,
        add_tags: tags(added), remove_tags: tags(removed) }),
    });
  }
}
