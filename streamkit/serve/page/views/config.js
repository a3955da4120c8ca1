// Edits the YAML as text: problems at their lines while typing, completion from its schema, changes before they are saved.

import { call, get } from "../api.js";
import { confirmChanges, follow, show, told } from "../changes.js";
import { Differences } from "../differences.js";
import { make, text } from "../dom.js";
import { draftOf, keepDraft } from "../drafts.js";
import { askToken, lost, onSession, signedIn, who } from "../session.js";
import { t } from "../strings.js";
import { complete } from "../yaml_complete.js";

const QUIET_MS = 400; // after the last key, before the text is checked

/** @typedef {import("../changes.js").Problem} Problem */
/** @typedef {import("../yaml_complete.js").Completion} Completion */

/** @param {HTMLElement} root */
export function open(root) {
  const view = new Config();
  root.append(view.element);
  const forget = onSession(() => view.session());
  view.session();
  return { update: (/** @type {import("./index.js").State} */ state) => view.update(state),
    close() {
      forget();
      view.close();
    } };
}

class Config {
  constructor() {
    this.closed = false;
    /** @type {import("../types").ConfigView | null} */
    this.loaded = null;
    /** @type {any} */
    this.schema = null;
    /** @type {boolean | undefined} */
    this.rejected = undefined;
    this.timer = 0;
    this.turn = 0;
    /** @type {Problem[]} */
    this.found = [];
    /** @type {Completion[]} */
    this.offered = [];
    this.chosen = 0;
    this.word = "";
    /** @type {CanvasRenderingContext2D | null} */
    this.canvas = null;
    this.gutter = make("div", { class: "gutter", "aria-hidden": "true" });
    this.marks = make("div", { class: "marks", "aria-hidden": "true" });
    this.text = make("textarea", {
      id: "config-text", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", "aria-label": t("config.text"),
      "aria-describedby": "config-help config-state", "aria-controls": "config-completions", "aria-autocomplete": "list",
      oninput: () => this.typed(), onscroll: () => this.scroll(), onkeydown: (event) => this.key(event), onblur: () => this.hide(), onclick: () => this.hide(),
    });
    this.popup = make("ul", { class: "completions", id: "config-completions", role: "listbox", "aria-label": t("config.completions"), hidden: true });
    this.code = make("div", { class: "code" }, this.gutter, make("div", { class: "area" }, this.marks, this.text, this.popup));
    this.save = make("button", { type: "button", class: "primary", onclick: () => this.store() }, t("config.save"));
    this.revert = make("button", { type: "button", onclick: () => this.discard() }, t("config.revert"));
    this.state = make("p", { class: "state", id: "config-state" });
    this.note = make("p", { class: "state", role: "status" });
    this.disk = make("p", { class: "state bad", role: "alert" });
    this.error = make("p", { class: "error", role: "alert" });
    this.problems = make("ul", { class: "problems", "aria-label": t("config.problems_title") });
    this.empty = make("div", { class: "empty", hidden: true });
    this.body = make("div", {}, this.disk, this.note, this.code,
      make("div", { class: "foot" }, make("p", { class: "help", id: "config-help" }, t("config.help")), make("div", { class: "buttons" }, this.revert, this.save)),
      this.state, this.error, this.problems);
    this.differences = new Differences(() => this.load());
    this.element = make("section", { class: "config", "aria-label": t("config.title") },
      make("div", { class: "title" }, make("h2", {}, t("config.title"))), this.differences.element, this.empty, this.body);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.keep();
  }

  get changed() {
    return this.loaded !== null && !this.body.hidden && this.text.value !== this.loaded.text;
  }

  // Keeps the text, where the cursor is, and the file that it was made from.
  keep() {
    if (!this.loaded || this.body.hidden) return;
    const { selectionStart: cursor, scrollTop: top, value } = this.text;
    keepDraft("config", who.name, this.changed ? { text: value, cursor, top, file: this.loaded } : null);
  }

  session() {
    if (signedIn) this.load();
    else this.nothing(t("config.sign_in"), make("button", { type: "button", class: "primary", onclick: askToken }, t("config.sign_in_button")));
  }

  /**
   * @param {string} words
   * @param {...HTMLElement} more
   */
  nothing(words, ...more) {
    if (words) this.text.value = "";
    this.empty.replaceChildren(make("p", {}, words), ...more);
    this.empty.hidden = !words;
    this.body.hidden = Boolean(words);
  }

  async load() {
    const again = this.loaded !== null;
    /** @type {import("../types").ConfigView} */
    let loaded;
    try {
      loaded = this.loaded = await get("/api/v1/config");
      this.schema ??= await get("/api/v1/config/schema");
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) lost();
      return this.nothing(trouble.message);
    }
    if (this.closed) return;
    this.nothing("");
    const draft = draftOf("config", who.name);
    this.text.value = draft?.text ?? loaded.text;
    text(this.error, loaded.read_only);
    this.told();
    text(this.note, draft ? t("config.kept") : "");
    if (draft) this.restore(draft);
    else show(this.state, again ? t("config.reverted", { name: loaded.name }) : "");
    this.typed(0);
  }

  /** @param {{ text: string, cursor: number, top: number, file: import("../types").ConfigView }} draft */
  restore({ cursor, top, file }) {
    const now = /** @type {import("../types").ConfigView} */ (this.loaded);
    if (file.hash !== now.hash) { // saving it would undo what another person has saved
      this.loaded = { ...now, text: file.text, hash: file.hash };
      text(this.error, t("config.changed_on_disk"));
    }
    this.text.setSelectionRange(cursor, cursor);
    this.text.scrollTop = top;
  }

  discard() {
    keepDraft("config", who.name, null);
    return this.load();
  }

  told() {
    const rejected = this.loaded?.rejected;
    text(this.disk, rejected ? t("changes.disk_rejected", { why: rejected }) : "");
    this.disk.hidden = !rejected;
  }

  /**
   * Looks at the file again where it may have changed: the state says when an edit was rejected, or is mended.
   * @param {import("./index.js").State} state
   */
  async update({ status }) {
    this.differences.update(status);
    if (!signedIn || !this.loaded || status.edit_rejected === this.rejected) return;
    this.rejected = status.edit_rejected;
    try {
      const now = await get("/api/v1/config");
      if (now.hash !== this.loaded.hash && this.text.value === this.loaded.text) {
        this.loaded = now;
        this.text.value = now.text;
        this.typed(0);
      } else if (now.hash !== this.loaded.hash) {
        text(this.error, t("config.changed_on_disk"));
      }
      text(this.disk, now.rejected ? t("changes.disk_rejected", { why: now.rejected }) : "");
      this.disk.hidden = !now.rejected;
    } catch { /* the page shows that the server does not respond */ }
  }

  // ----------------------------------------------------------------------------------------------------------- problems

  typed(wait = QUIET_MS) {
    this.number();
    this.keep();
    this.save.disabled = !this.loaded || this.text.value === this.loaded.text || Boolean(this.loaded.read_only);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(), wait);
    if (!this.popup.hidden) this.offer();
    else if (wait && /[\w-]$/.test(this.text.value.slice(0, this.text.selectionStart).slice(-1))) this.offer(2);
  }

  async check() {
    const mine = this.turn += 1;
    try {
      const edit = await call("POST", "/api/v1/config/check", { text: this.text.value });
      if (mine === this.turn && !this.closed) this.mark(edit.problems);
      return edit;
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) lost();
      text(this.error, trouble.message);
      return null;
    }
  }

  /** @param {Problem[]} problems */
  mark(problems) {
    this.found = problems;
    this.problems.replaceChildren(...problems.map((one) => make("li", { class: one.warning ? "warning" : "bad" },
      make("button", { type: "button", onclick: () => this.go(one) }, told(one)))));
    const wrong = problems.filter((one) => !one.warning).length;
    show(this.state, wrong ? t(wrong === 1 ? "config.problems_1" : "config.problems_n", { n: wrong }) : t("config.valid"), wrong ? "bad" : "ok");
    this.text.setAttribute("aria-invalid", String(wrong > 0));
    this.number();
  }

  number() {
    const count = this.text.value.split("\n").length;
    const lines = new Map(this.found.map((one) => [one.line, one]));
    while (this.gutter.children.length > count) this.gutter.lastChild?.remove();
    while (this.gutter.children.length < count) this.gutter.append(make("span", {}, String(this.gutter.children.length + 1)));
    /** @type {HTMLElement[]} */ ([...this.gutter.children]).forEach((one, n) => {
      const problem = lines.get(n + 1);
      one.className = problem ? (problem.warning ? "warning" : "bad") : "";
      one.title = problem?.text ?? "";
    });
    this.scroll();
  }

  scroll() {
    this.gutter.scrollTop = this.text.scrollTop;
    const height = this.height();
    const top = (/** @type {number} */ line) => (line - 1) * height - this.text.scrollTop + parseFloat(getComputedStyle(this.text).paddingTop);
    this.marks.replaceChildren(...this.found.filter((one) => one.line).map((one) => {
      const mark = make("i", { class: one.warning ? "warning" : "" });
      mark.style.top = `${top(one.line)}px`;
      return mark;
    }));
  }

  height() {
    return parseFloat(getComputedStyle(this.text).lineHeight);
  }

  /** @param {Problem} problem */
  go(problem) {
    const lines = this.text.value.split("\n").slice(0, Math.max(0, problem.line - 1));
    const at = lines.reduce((sum, line) => sum + line.length + 1, 0) + Math.max(0, problem.column - 1);
    this.text.focus();
    this.text.setSelectionRange(at, at);
    this.text.scrollTop = Math.max(0, (problem.line - 5) * this.height());
  }

  // --------------------------------------------------------------------------------------------------------- completion

  offer(least = 0) {
    const { word, found } = complete(this.schema, this.text.value, this.text.selectionStart);
    if (word.length < least || !found.length || (found.length === 1 && found[0].label === word)) return this.hide();
    this.word = word;
    this.popup.replaceChildren(...found.map((one, n) => make("li", {
      role: "option", id: `config-completion-${n}`, onmousedown: (event) => { event.preventDefault(); this.take(one); },
    }, make("strong", {}, one.label), make("small", {}, one.help.replace(/^\*/, t("config.required"))))));
    this.offered = found;
    this.popup.hidden = false;
    this.choose(0);
    const before = this.text.value.slice(0, this.text.selectionStart).split("\n");
    const style = getComputedStyle(this.text), canvas = this.canvas ??= /** @type {CanvasRenderingContext2D} */ (document.createElement("canvas").getContext("2d"));
    canvas.font = style.font;
    const line = before[before.length - 1];
    const left = canvas.measureText(line.slice(0, line.length - word.length)).width - this.text.scrollLeft + parseFloat(style.paddingLeft);
    const below = before.length * this.height() - this.text.scrollTop + parseFloat(style.paddingTop);
    const room = this.text.clientHeight - below, tall = this.popup.offsetHeight;
    this.popup.style.left = `${Math.max(0, Math.min(left, this.text.clientWidth - this.popup.offsetWidth))}px`;
    this.popup.style.top = `${room >= tall || below - this.height() < tall ? below : below - this.height() - tall}px`;
  }

  /** @param {number} n */
  choose(n) {
    this.chosen = (n + this.offered.length) % this.offered.length;
    [...this.popup.children].forEach((one, at) => one.setAttribute("aria-selected", String(at === this.chosen)));
    this.popup.children[this.chosen].scrollIntoView({ block: "nearest" });
    this.text.setAttribute("aria-activedescendant", `config-completion-${this.chosen}`);
  }

  /** @param {Completion} one */
  take(one) {
    const end = this.text.selectionStart;
    this.hide();
    this.text.setSelectionRange(end - this.word.length, end);
    // keeps the browser's own undo
    if (!document.execCommand("insertText", false, one.text)) this.text.setRangeText(one.text, end - this.word.length, end, "end");
    this.hide();
    this.typed();
  }

  hide() {
    this.popup.hidden = true;
    this.text.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const held = event.ctrlKey || event.metaKey;
    if (held && event.key === " ") this.offer();
    else if (held && event.key.toLowerCase() === "s") this.store();
    else if (!this.popup.hidden && event.key === "ArrowDown") this.choose(this.chosen + 1);
    else if (!this.popup.hidden && event.key === "ArrowUp") this.choose(this.chosen - 1);
    else if (!this.popup.hidden && event.key === "Escape") this.hide();
    else if (!this.popup.hidden && (event.key === "Enter" || event.key === "Tab")) this.take(this.offered[this.chosen]);
    else if (event.key === "Enter" && !held) this.indent();
    else return;
    event.preventDefault();
  }

  // A new line begins where the one above does, or two further behind a colon.
  indent() {
    const line = this.text.value.slice(0, this.text.selectionStart).split("\n").at(-1) ?? "";
    const more = /:\s*(#.*)?$/.test(line) ? "  " : "";
    document.execCommand("insertText", false, `\n${/** @type {RegExpMatchArray} */ (line.match(/^ */))[0]}${more}`);
  }

  // ------------------------------------------------------------------------------------------------------------- saving

  async store() {
    if (!signedIn) return askToken();
    const { loaded } = this;
    if (!loaded) return;
    if (this.text.value === loaded.text) return show(this.state, t("config.unchanged"));
    text(this.error, "");
    const given = this.text.value, edit = await this.check();
    if (!edit) return;
    const saved = await confirmChanges(loaded.name, edit, () => call("PUT", "/api/v1/config", { text: given, hash: this.loaded?.hash }));
    this.text.focus();
    if (!saved) return;
    this.loaded = { ...loaded, text: given, hash: saved.hash, rejected: "" };
    this.told();
    text(this.note, "");
    this.typed();
    await follow(loaded.name, saved.hash, this.state);
  }
}
