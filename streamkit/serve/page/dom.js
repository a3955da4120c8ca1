// Creates and updates elements. Text is always set as text, so that names and messages never become markup.

import { t } from "./strings.js";

/** @typedef {string | number | boolean | null | undefined | ((event: any) => void)} Attribute */

/**
 * The element with this id, which must be there. Name its type where the properties of one are needed.
 * @template {HTMLElement} [E=HTMLElement]
 * @param {string} id
 * @returns {E}
 */
export function $(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element "${id}"`);
  return /** @type {E} */ (found);
}

/**
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, Attribute>} [attributes] `onclick` and its like are listeners
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children);
  return made;
}

/**
 * @param {string} tag
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

/**
 * @param {Element} element
 * @param {string} value
 */
export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}

/**
 * Puts children of a parent in this order; what has the focus keeps it, as moving an element would take it away.
 * @param {HTMLElement} parent
 * @param {HTMLElement[]} children
 */
export function arrange(parent, children) {
  const focused = document.activeElement;
  children.forEach((child, place) => {
    if (parent.children[place] !== child) parent.insertBefore(child, parent.children[place] ?? null);
  });
  if (focused instanceof HTMLElement && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/**
 * Tells screen readers.
 * @param {string} words
 */
export function say(words) {
  text($("said"), words);
}

const whole = new Intl.NumberFormat();

/** @param {number} n */
export const number = (n) => whole.format(n);

/**
 * A duration in the largest unit.
 * @param {number} seconds
 */
export function ago(seconds) {
  if (seconds < 60) return t("time.seconds", { n: Math.floor(seconds) });
  if (seconds < 3600) return t("time.minutes", { n: Math.floor(seconds / 60) });
  if (seconds < 172800) return t("time.hours", { n: Math.floor(seconds / 3600) });
  return t("time.days", { n: Math.floor(seconds / 86400) });
}

/**
 * The message of anything that was thrown.
 * @param {unknown} trouble
 */
export const why = (trouble) => (trouble instanceof Error ? trouble.message : String(trouble));

/**
 * The field of a form with this name.
 * @param {HTMLFormElement} form
 * @param {string} name
 */
export const field = (form, name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));

/**
 * Sets up a dialog: its cancel buttons and its form. `submit` receives the form; an error that it throws is shown.
 * @param {string} id
 * @param {(form: HTMLFormElement) => Promise<void>} [submit]
 */
export function dialog(id, submit) {
  const box = /** @type {HTMLDialogElement} */ ($(id));
  const form = box.querySelector("form");
  const error = box.querySelector(".error");
  for (const button of box.querySelectorAll(".cancel")) button.addEventListener("click", () => box.close());
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = /** @type {HTMLButtonElement} */ (form.querySelector('[type="submit"]'));
    button.disabled = true;
    if (error) text(error, "");
    try {
      await submit?.(form);
      box.close();
    } catch (trouble) {
      if (error) text(error, why(trouble));
    } finally {
      button.disabled = false;
    }
  });
  return {
    box,
    open() {
      if (error) text(error, "");
      box.showModal();
    },
  };
}
