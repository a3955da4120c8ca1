// Form controls for values that have a JSON schema: a checkbox, a number, a choice, a text, a list, or rows of a mapping.

import { make } from "./dom.js";
import { t } from "./strings.js";

/** @typedef {{ name: string, value: any, help: string, schema: any }} Setting */
/**
 * `read` throws an Error with the reason if what the user typed is no value.
 * @typedef {{ name: string, element: HTMLElement, read: () => any, write: (value: any) => void }} Control
 */

/**
 * The schemas that a value may have.
 * @param {any} schema
 * @returns {any[]}
 */
const variants = (schema) => (schema.anyOf ?? schema.oneOf ?? [schema]);

/**
 * The unit of a number, from its schema or help.
 * @param {Setting} setting
 */
function unit(setting) {
  const patterns = variants(setting.schema).map((one) => one.pattern ?? "").join(" ");
  if (patterns.includes("(ms|s|min")) return t("control.seconds");
  if (patterns.includes("KiB")) return t("control.bytes");
  return /\bpixels\b/.test(setting.help) ? t("control.pixels") : "";
}

/**
 * The bounds of a number in words.
 * @param {any} schema
 */
function bounds(schema) {
  const { minimum: low, maximum: high } = schema;
  if (low !== undefined && high !== undefined) return t("control.between", { low, high });
  if (low !== undefined) return t("control.atLeast", { low });
  return high === undefined ? "" : t("control.atMost", { high });
}

/**
 * A number's field.
 * @param {any} schema
 * @param {Record<string, any>} attributes
 */
function numeric(schema, attributes) {
  const step = schema.type === "integer" ? 1 : "any";
  return make("input", { type: "number", step, min: schema.minimum, max: schema.maximum, autocomplete: "off", ...attributes });
}

/**
 * The number in a field, or null if it is empty.
 * @param {HTMLInputElement} input
 */
function numberIn(input) {
  if (input.validity.badInput) throw new Error(t("control.noNumber"));
  return input.value.trim() === "" ? null : input.valueAsNumber;
}

/**
 * Rows that the user adds and removes: the items of a list, or the keys and values of a mapping.
 * @param {{ keyed: boolean, schema: any, label: string }} about
 * @returns {Omit<Control, "name">}
 */
function rows({ keyed, schema, label }) {
  const list = make("ul", { class: "rows", role: "list" });
  const isNumber = schema.type === "number" || schema.type === "integer";
  /**
   * @param {string} key
   * @param {any} value
   */
  const add = (key, value) => {
    const named = make("input", { "aria-label": t("control.key", { label }), value: key, autocomplete: "off", hidden: !keyed });
    const input = isNumber ? numeric(schema, { "aria-label": t("control.value", { label }) })
      : make("input", { "aria-label": t("control.value", { label }), autocomplete: "off" });
    input.value = value === null ? "" : String(value);
    const row = make("li", {}, named, input, make("button", { type: "button", class: "small", "aria-label": t("control.removeRow", { label }),
      onclick: () => { row.remove(); } }, "×"));
    list.append(row);
    return keyed ? named : input;
  };
  return {
    element: make("div", {}, list, make("button", { type: "button", class: "small", onclick: () => add("", null).focus() }, t("control.addRow"))),
    read() {
      const found = [...list.children].map((row) => {
        const [key, input] = /** @type {NodeListOf<HTMLInputElement>} */ (row.querySelectorAll("input"));
        const value = isNumber ? numberIn(input) : input.value;
        if (value === null || (keyed && !key.value.trim())) throw new Error(t("control.emptyRow", { label }));
        return [key.value.trim(), value];
      });
      return keyed ? Object.fromEntries(found) : found.map(([, value]) => value);
    },
    write(value) {
      list.replaceChildren();
      for (const [key, one] of Object.entries(value ?? {})) add(keyed ? key : "", one);
    },
  };
}

/**
 * The right control for a setting.
 * @param {Setting} setting
 * @param {string} id of the element that takes the value
 * @returns {Control}
 */
export function control(setting, id) {
  const all = variants(setting.schema);
  const of = (/** @type {string[]} */ ...types) => all.find((one) => types.includes(one.type));
  const optional = Boolean(of("null"));
  const help = `${id}-help`;
  const shared = { id, name: setting.name, "aria-describedby": help };
  const label = make("label", { for: id }, setting.name);
  const about = make("p", { class: "help", id: help }, setting.help);
  const made = (/** @type {Omit<Control, "name">} */ one, /** @type {Node[]} */ ...before) => {
    one.write(setting.value);
    const parts = one.element instanceof HTMLInputElement && one.element.type === "checkbox"
      ? [make("div", { class: "check" }, one.element, label)] : [label, ...before, one.element];
    return { ...one, name: setting.name, element: make("div", { class: "setting" }, ...parts, about) };
  };
  const choice = all.find((one) => one.enum);
  const number = of("number", "integer"), list = of("array"), mapping = all.find((one) => one.additionalProperties && !one.properties);
  if (choice) return made(select(choice.enum, optional, shared));
  if (of("boolean") && !optional) return made(checkbox(shared));
  if (number && mapping) {
    const one = { ...number, ...mapping.additionalProperties };
    return made(both(numberField(setting, one, optional, shared), rows({ keyed: true, schema: one, label: setting.name }), id), about);
  }
  if (number && (typeof setting.value === "number" || setting.value === null)) return made(numberField(setting, number, optional, shared));
  if (list && isScalar(list.items)) return made(orNothing(rows({ keyed: false, schema: list.items, label: setting.name }), optional, id));
  if (mapping && isScalar(mapping.additionalProperties)) {
    return made(orNothing(rows({ keyed: true, schema: mapping.additionalProperties, label: setting.name }), optional, id));
  }
  if (of("string")) return made(textField(optional, shared));
  return made(json(shared));
}

/** @param {any} schema */
const isScalar = (schema) => ["string", "number", "integer"].includes(schema?.type);

/** @param {Record<string, any>} shared */
function checkbox(shared) {
  const input = make("input", { type: "checkbox", ...shared });
  return { element: input, read: () => input.checked, write: (/** @type {any} */ value) => { input.checked = value; } };
}

/**
 * @param {any[]} values
 * @param {boolean} optional
 * @param {Record<string, any>} shared
 */
function select(values, optional, shared) {
  const offered = optional ? [null, ...values] : values;
  const element = make("select", shared, ...offered.map((one, place) => make("option", { value: place }, one === null ? t("control.notSet") : String(one))));
  return { element, read: () => offered[Number(element.value)],
    write: (/** @type {any} */ value) => { element.value = String(Math.max(0, offered.indexOf(value))); } };
}

/**
 * @param {Setting} setting
 * @param {any} schema
 * @param {boolean} optional
 * @param {Record<string, any>} shared
 */
function numberField(setting, schema, optional, shared) {
  const input = numeric(schema, { ...shared, placeholder: optional ? t("control.notSet") : null });
  const told = [unit(setting), bounds(schema)].filter(Boolean).join(", ");
  return { element: make("div", { class: "unit" }, input, make("span", {}, told)),
    read() {
      const found = numberIn(input);
      if (found === null && !optional) throw new Error(t("control.noNumber"));
      return found;
    },
    write: (/** @type {any} */ value) => { input.value = value === null ? "" : String(value); } };
}

/**
 * @param {boolean} optional
 * @param {Record<string, any>} shared
 */
function textField(optional, shared) {
  const input = make("input", { ...shared, autocomplete: "off", placeholder: optional ? t("control.notSet") : null });
  return { element: input, read: () => (optional && input.value === "" ? null : input.value),
    write: (/** @type {any} */ value) => { input.value = value === null ? "" : String(value); } };
}

/** @param {Record<string, any>} shared */
function json(shared) {
  const area = make("textarea", { ...shared, rows: 3, spellcheck: "false" });
  return { element: area,
    read() {
      try {
        return JSON.parse(area.value || "null");
      } catch {
        throw new Error(t("control.notJson", { label: shared.name }));
      }
    },
    write: (/** @type {any} */ value) => { area.value = JSON.stringify(value, null, 1); } };
}

/**
 * One value, or one for each key.
 * @param {Omit<Control, "name">} single
 * @param {Omit<Control, "name">} each
 * @param {string} id
 */
function both(single, each, id) {
  const box = make("input", { type: "checkbox", id: `${id}-each`, onchange: () => show() });
  const show = () => {
    single.element.hidden = box.checked;
    each.element.hidden = !box.checked;
  };
  return { element: make("div", {}, single.element, each.element, make("div", { class: "check" }, box, make("label", { for: box.id }, t("control.each")))),
    read: () => (box.checked ? each.read() : single.read()),
    write(/** @type {any} */ value) {
      box.checked = value !== null && typeof value === "object";
      (box.checked ? each : single).write(value);
      (box.checked ? single : each).write(null);
      show();
    } };
}

/**
 * Rows that may be not set at all.
 * @param {Omit<Control, "name">} inner
 * @param {boolean} optional
 * @param {string} id
 */
function orNothing(inner, optional, id) {
  const box = make("input", { type: "checkbox", id, onchange: () => show(), hidden: !optional });
  const word = make("label", { for: id, hidden: !optional }, t("control.set"));
  const show = () => { inner.element.hidden = optional && !box.checked; };
  return { element: make("div", {}, make("div", { class: "check", hidden: !optional }, box, word), inner.element),
    read: () => (optional && !box.checked ? null : inner.read()),
    write(/** @type {any} */ value) {
      box.checked = value !== null;
      inner.write(value);
      show();
    } };
}

/**
 * A value as a short text.
 * @param {any} value
 */
export const shown = (value) => (value === null ? t("control.notSet") : typeof value === "object" ? JSON.stringify(value) : String(value));
