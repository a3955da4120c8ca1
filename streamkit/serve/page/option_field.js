// A field for an option of a source, by its JSON schema. An empty field means that the option has its default.

import { make } from "./dom.js";
import { t } from "./strings.js";

/** @typedef {{ name: string, help: string, type: string, schema: any, default: any, common: boolean }} SourceOption */
/** @typedef {{ name: string, element: HTMLElement, read: () => any }} OptionField `read` returns undefined for the default */

/** @param {any} schema */
const variants = (schema) => (schema.anyOf ?? [schema]).filter((/** @type {any} */ one) => one.type !== "null");
/** @param {any} schema */
const numeric = (schema) => schema.type === "number" || schema.type === "integer";
/** @param {any} schema */
const isDuration = (schema) => schema.type === "string" && (schema.pattern ?? "").includes("(ms|s|min");
/** @param {any} schema */
const words = (schema) => schema.enum ?? (schema.const === undefined ? [] : [schema.const]);

/** @param {any} value */
function shown(value) {
  if (value === null || value === undefined) return t("source.unset");
  if (typeof value === "boolean") return t(value ? "source.on" : "source.off");
  return String(value);
}

/**
 * @param {SourceOption} option
 * @param {any} value the value that is set; undefined for the default
 * @param {string} prefix of the ids
 * @returns {OptionField}
 */
export function optionField(option, value, prefix) {
  const id = `${prefix}-${option.name}`, all = variants(option.schema);
  const about = { id, name: option.name, "aria-describedby": `${id}-help` };
  const inSeconds = typeof option.default === "number" && all.some(isDuration);
  const usual = t("source.default", { value: inSeconds ? `${option.default}s` : shown(option.default) });
  const has = (/** @type {string} */ type) => all.find((/** @type {any} */ one) => one.type === type);
  const inner = has("object");
  let made;
  if (has("boolean") && inner) made = switched(about, usual, value, group(inner, value, id));
  else if (has("boolean") && all.some(numeric)) made = switched(about, usual, value, times(all.find(numeric), value, id));
  else if (has("boolean")) made = choice(about, usual, [[true, t("source.on")], [false, t("source.off")]], value);
  else if (all.length === 1 && words(all[0]).length) made = choice(about, usual, words(all[0]).map((/** @type {any} */ one) => [one, String(one)]), value);
  else if (all.every(numeric)) made = number(option.name, about, usual, all[0], value);
  else made = free(option.name, about, usual, all, value);
  return { name: option.name, read: made.read, element: make("div", { class: "option" },
    make("label", { for: id }, option.name), made.element, make("p", { class: "help", id: `${id}-help` }, `${option.help} `,
      make("span", { class: "type" }, option.type))) };
}

/**
 * @param {Record<string, any>} about
 * @param {string} usual
 * @param {[any, string][]} offered values and their texts
 * @param {any} value
 */
function choice(about, usual, offered, value) {
  const at = offered.findIndex(([one]) => one === value);
  const element = /** @type {HTMLSelectElement} */ (make("select", about, make("option", { value: "" }, usual),
    ...offered.map(([, label], place) => make("option", { value: String(place), selected: place === at }, label))));
  return { element, read: () => (element.value === "" ? undefined : offered[Number(element.value)][0]) };
}

/**
 * A choice of on, off, or what `detail` has.
 * @param {Record<string, any>} about
 * @param {string} usual
 * @param {any} value
 * @param {{ element: HTMLElement, read: () => any, on: string, label: string }} detail
 */
function switched(about, usual, value, detail) {
  const OWN = {};
  const set = value === undefined || value === null || typeof value === "boolean" ? value : OWN;
  const select = choice(about, usual, [[true, detail.on], [false, t("source.off")], [OWN, detail.label]], set ?? undefined);
  const show = () => { detail.element.hidden = select.read() !== OWN; };
  select.element.addEventListener("change", show);
  show();
  return { element: make("div", {}, select.element, detail.element), read: () => (select.read() === OWN ? detail.read() : select.read()) };
}

/**
 * @param {any} schema of the number
 * @param {any} value
 * @param {string} id
 */
function times(schema, value, id) {
  const own = typeof value === "number" ? value : undefined;
  const field = number(t("source.timesOf"), { id: `${id}-times`, "aria-label": t("source.timesOf") }, "", schema, own);
  return { element: field.element, on: t("source.forever"), label: t("source.times"), read: field.read };
}

/**
 * The fields of a mapping.
 * @param {any} schema of the mapping
 * @param {any} value
 * @param {string} id
 */
function group(schema, value, id) {
  const given = value !== null && typeof value === "object" ? value : {};
  const fields = Object.entries(schema.properties).map(([name, one]) => {
    const all = variants(one), about = { id: `${id}-${name}` };
    const made = all.every(numeric) ? number(name, about, "", all[0], given[name]) : free(name, about, "", all, given[name]);
    return { name, read: made.read, element: make("div", {}, make("label", { for: about.id }, name), made.element) };
  });
  return { element: make("div", { class: "group" }, ...fields.map((one) => one.element)), on: t("source.on"), label: t("source.custom"),
    read: () => Object.fromEntries(fields.map((one) => [one.name, one.read()]).filter(([, one]) => one !== undefined)) };
}

/**
 * @param {string} name
 * @param {Record<string, any>} about
 * @param {string} usual
 * @param {any} schema
 * @param {any} value
 */
function number(name, about, usual, schema, value) {
  const element = /** @type {HTMLInputElement} */ (make("input", { ...about, type: "number", autocomplete: "off", placeholder: usual,
    min: schema.minimum, max: schema.maximum, step: schema.type === "integer" ? 1 : "any" }));
  if (value !== undefined && value !== null) element.value = String(value);
  return { element, read() {
    if (element.validity.badInput) throw new Error(t("source.noNumber", { name }));
    return element.value === "" ? undefined : element.valueAsNumber;
  } };
}

/**
 * A text, which may be a word, a number or a duration.
 * @param {string} name
 * @param {Record<string, any>} about
 * @param {string} usual
 * @param {any[]} all schemas
 * @param {any} value
 */
function free(name, about, usual, all, value) {
  const offered = all.flatMap(words), duration = all.find(isDuration);
  const list = make("datalist", { id: `${about.id}-list` }, ...offered.map((one) => make("option", { value: String(one) })));
  const input = /** @type {HTMLInputElement} */ (make("input", { ...about, autocomplete: "off", spellcheck: "false", placeholder: usual,
    list: offered.length ? list.id : null }));
  if (value !== undefined && value !== null) input.value = typeof value === "string" ? value : JSON.stringify(value);
  return { element: offered.length ? make("div", {}, input, list) : input, read() {
    const given = input.value.trim();
    if (!given) return undefined;
    const plain = Number(given);
    if (all.some(numeric) && !Number.isNaN(plain)) return plain;
    if (duration && !new RegExp(duration.pattern).test(given)) throw new Error(t("source.noDuration", { name }));
    if (/^[[{]/.test(given)) {
      try {
        return JSON.parse(given);
      } catch { /* a text that begins like a list */ }
    }
    return given;
  } };
}
