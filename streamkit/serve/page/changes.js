// Shows the changes to the YAML before they are saved, saves them, and says whether the pipeline runs with them.

import { get } from "./api.js";
import { make, say, text, why } from "./dom.js";
import { t } from "./strings.js";

const EVERY_MS = 500, PATIENCE_MS = 60_000;

/** @typedef {{ line: number, column: number, text: string, warning: boolean }} Problem */
/** @typedef {import("./types").EditView} Edit */

/**
 * The text of a problem, with its place.
 * @param {Problem} problem
 * @returns {string}
 */
export function told(problem) {
  const words = problem.warning ? t("config.warning", { text: problem.text }) : problem.text;
  return problem.line ? t("config.problem", { line: problem.line, column: problem.column, text: words }) : words;
}

/**
 * The lines of a unified diff as elements.
 * @param {string} diff
 * @returns {HTMLElement}
 */
export function shown(diff) {
  const lines = diff.split("\n").slice(2, -1).filter((line) => !line.startsWith("@@") || (diff.match(/^@@/gm) ?? []).length > 1);
  /** @type {Record<string, string>} */
  const kinds = { "+": "added", "-": "removed", "@": "place" };
  return make("pre", { class: "diff", tabindex: "0" }, ...lines.map((line) => make("span", { class: kinds[line[0]] ?? "" }, `${line}\n`)));
}

/**
 * What saving an edit does to the running pipeline.
 * @param {Edit} edit
 * @returns {HTMLElement}
 */
function effect({ rebuilds }) {
  if (!rebuilds.length) return make("p", { class: "effect" }, t("changes.live"));
  return make("p", { class: "effect rebuilds" }, t("changes.rebuilds", { what: rebuilds.join(", ") }));
}

/**
 * Asks whether changes are to be saved, and saves them.
 * @param {string} name the file's name
 * @param {Edit} edit the checked edit
 * @param {() => Promise<Edit>} save
 * @returns {Promise<Edit | null>} the saved edit; null if the user canceled
 */
export function confirmChanges(name, edit, save) {
  const valid = edit.problems.every((one) => one.warning);
  const error = make("p", { class: "error", role: "alert" });
  const problems = make("ul", { class: "problems" }, ...edit.problems.map((one) => make("li", { class: one.warning ? "warning" : "bad" }, told(one))));
  const cancel = make("button", { type: "button", class: "cancel" }, t("changes.cancel"));
  const apply = make("button", { type: "button", class: "primary" }, t("changes.apply"));
  apply.disabled = !valid || !edit.diff;
  const box = make("dialog", { class: "changes", "aria-labelledby": "changes-title" },
    make("h2", { id: "changes-title" }, t("changes.title", { name })),
    edit.diff ? shown(edit.diff) : make("p", {}, t("changes.none")), valid && edit.diff ? effect(edit) : "", problems, error,
    make("div", { class: "buttons" }, cancel, apply));
  document.body.append(box);
  return new Promise((done) => {
    /** @type {Edit | null} */
    let saved = null;
    cancel.addEventListener("click", () => box.close());
    box.addEventListener("close", () => {
      box.remove();
      done(saved);
    });
    apply.addEventListener("click", async () => {
      apply.disabled = true;
      text(error, t("changes.saving"));
      try {
        saved = await save();
        box.close();
      } catch (trouble) {
        text(error, why(trouble));
        apply.disabled = false;
      }
    });
    box.showModal();
    (apply.disabled ? cancel : apply).focus();
  });
}

/**
 * Waits until the pipeline runs with a saved text, and shows what comes of it.
 * @param {string} name the file's name
 * @param {string} hash of the saved text
 * @param {HTMLElement} line shows the state
 */
export async function follow(name, hash, line) {
  show(line, t("changes.following", { name }));
  const until = Date.now() + PATIENCE_MS;
  while (line.isConnected && Date.now() < until) {
    await new Promise((done) => setTimeout(done, EVERY_MS));
    try {
      const now = await get("/api/v1/config");
      if (now.hash !== hash) return;
      if (now.rejected) return show(line, t("changes.rejected", { name, why: now.rejected }), "bad");
      if (now.applied && (await get("/api/v1/status")).ready) return show(line, t("changes.applied", { name }), "ok");
    } catch { /* the next attempt says more */ }
  }
}

/**
 * @param {HTMLElement} line
 * @param {string} words
 * @param {string} [kind]
 */
export function show(line, words, kind = "") {
  line.className = `state ${kind}`;
  text(line, words);
  if (words) say(words);
}
