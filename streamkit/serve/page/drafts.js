// Unsaved edits of views: they stay while another view is shown, and a mark in the navigation tells of them. Only the person
// who made them sees them again. Before the page closes, the browser asks.

import { make } from "./dom.js";
import { t } from "./strings.js";

/** @type {Map<string, { owner: string, content: any }>} */
const drafts = new Map();

/**
 * Keeps the unsaved edit of a view; without content, there is none.
 * @param {string} view
 * @param {string} owner who is signed in
 * @param {any} content
 */
export function keepDraft(view, owner, content) {
  if (content === null) drafts.delete(view);
  else drafts.set(view, { owner, content });
  mark(view);
}

/**
 * The unsaved edit of a view by this person, or null.
 * @param {string} view
 * @param {string} owner
 */
export function draftOf(view, owner) {
  const draft = drafts.get(view);
  return draft?.owner === owner ? draft.content : null;
}

/** The views with unsaved edits. */
export const unsaved = () => [...drafts.keys()];

export function forgetDrafts() {
  for (const view of unsaved()) keepDraft(view, "", null);
}

/** @param {string} view */
function mark(view) {
  const link = document.querySelector(`#views a[data-view="${view}"]`), dot = link?.querySelector(".unsaved");
  if (!drafts.has(view)) dot?.remove();
  else if (link && !dot) link.append(make("span", { class: "unsaved", title: t("page.unsaved") }, make("span", { class: "unseen" }, t("page.unsaved"))));
}

addEventListener("beforeunload", (event) => {
  if (drafts.size) event.preventDefault();
});
