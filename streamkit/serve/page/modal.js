// Dialogs that a view makes when it needs them; they are gone when they close.

import { make, text } from "./dom.js";

let last = 0;

/**
 * Opens a dialog with a form.
 * @param {{ title: string, body: (Node | string)[], save?: string, danger?: boolean, cancel: string, id?: string, wide?: boolean,
 *   submit?: () => Promise<void> }} about `submit` may throw an Error, whose message is shown
 * @returns {{ box: HTMLDialogElement, close: () => void, error: HTMLElement }}
 */
export function modal({ title, body, save, danger, cancel, id, wide, submit }) {
  const name = id ?? `modal-${last += 1}`;
  const error = make("p", { id: `${name}-error`, class: "error", role: "alert" });
  const button = save ? make("button", { type: "submit", id: `${name}-save`, class: danger ? "danger" : "primary" }, save) : null;
  const form = make("form", { method: "dialog", novalidate: false },
    make("h2", { id: `${name}-title` }, title), ...body, error,
    make("div", { class: "buttons" },
      make("button", { type: "button", class: "cancel", onclick: () => box.close() }, cancel), ...(button ? [button] : [])));
  const box = /** @type {HTMLDialogElement} */ (make("dialog", { id: name, class: wide ? "wide" : null, "aria-labelledby": `${name}-title` }, form));
  form.addEventListener("submit", async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (!submit || !button) return;
    button.disabled = true;
    text(error, "");
    try {
      await submit();
      box.close();
    } catch (trouble) {
      text(error, trouble instanceof Error ? trouble.message : String(trouble));
    } finally {
      button.disabled = false;
    }
  });
  const before = document.activeElement;
  box.addEventListener("close", () => {
    box.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  });
  document.body.append(box);
  box.showModal();
  return { box, close: () => box.close(), error };
}
