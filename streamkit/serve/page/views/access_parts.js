// What the sections of the view Access share.

import { get } from "../api.js";
import { make, text } from "../dom.js";
import { modal } from "../modal.js";
import { t } from "../strings.js";

export const ROLES = ["viewer", "operator", "admin"];

let fields = 0;

// Shows what went wrong below the title of a section.
export function trouble() {
  const element = make("p", { class: "error", role: "alert" });
  return { element, async during(/** @type {() => Promise<void>} */ work) {
    text(element, "");
    try {
      await work();
    } catch (/** @type {any} */ error) {
      text(element, error.message);
    }
  } };
}

/**
 * Shows a secret once, in a dialog that copies it.
 * @param {string} title
 * @param {string} about
 * @param {string} label
 * @param {string} secret
 */
export function showOnce(title, about, label, secret) {
  const shown = /** @type {HTMLInputElement} */ (make("input", { id: "token-text", readonly: true, class: "token", "aria-label": label }));
  shown.value = secret;
  const copy = make("button", { type: "button", onclick: async () => {
    shown.select();
    try {
      await navigator.clipboard.writeText(secret);
    } catch { // over plain HTTP there is no clipboard: the old way
      document.execCommand("copy");
    }
    text(copy, t("tokens.copied"));
  } }, t("tokens.copy"));
  modal({ title, body: [make("p", {}, about), make("div", { class: "copy" }, shown, copy)], cancel: t("tokens.done") });
  shown.select();
}

/**
 * The camera groups of a person or token in words.
 * @param {string[] | null} groups
 */
export const groupsText = (groups) => (groups === null ? t("access.all") : groups.join(", ") || t("access.none"));

/**
 * A field for camera groups; it offers those of the cameras.
 * @param {string} id
 * @param {string[] | null} [groups]
 */
export function groupsField(id, groups = null) {
  const input = /** @type {HTMLInputElement} */ (make("input", { id, autocomplete: "off", maxlength: 2000, "aria-describedby": `${id}-help-${fields += 1}` }));
  const help = make("p", { class: "help", id: `${id}-help-${fields}` }, t("access.groupsHelp"));
  input.value = (groups ?? []).join(", ");
  get("/api/v1/sources").then((/** @type {import("../types").SourceView[]} */ sources) => {
    const names = [...new Set(sources.map(({ group }) => group).filter(Boolean))].sort();
    if (names.length) text(help, t("access.groupsKnown", { groups: names.join(", ") }));
  }).catch(() => null);
  return {
    element: make("div", {}, make("label", { for: id }, t("access.groups")), input),
    help,
    /** @param {boolean} may an admin sees all cameras */
    enable(may) {
      input.disabled = !may;
      help.hidden = !may;
    },
    clear: () => { input.value = ""; },
    /** @returns {string[] | null} */
    value() {
      const names = input.disabled ? [] : input.value.split(",").map((name) => name.trim()).filter(Boolean);
      return names.length ? names : groups?.length === 0 ? [] : null; // who saw no camera still sees none
    },
  };
}
