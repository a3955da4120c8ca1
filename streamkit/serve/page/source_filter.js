// The search, filter and sort of cameras that views share. The choice is part of the address, so that a link keeps it, and
// goes along when the user changes between these views.

import { CONDITIONS, condition, isProblem, named, rank } from "./condition.js";
import { make, text } from "./dom.js";
import { nameOf } from "./names.js";
import { address } from "./router.js";
import { t } from "./strings.js";

/** @typedef {import("./types").SourceView} SourceView */
/** @typedef {"words" | "state" | "group" | "site" | "tag" | "sort"} Key */

/** @type {Key[]} */
const KEYS = ["words", "state", "group", "site", "tag", "sort"];
/** @type {Key[]} */
const CHOICES = ["state", "group", "site", "tag", "sort"];
const SORTS = ["order", "worst", "name", "group", "rate"];
const VIEWS = ["home", "live", "sources"];
const PROBLEM = "problem";
const NONE = "-"; // of the group or site of a camera that has none
const TYPED_MS = 150;
const EVERY_NAME = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });
/** A camera choice with more names than this has a search box. */
const MANY = 12;

/** @type {WeakMap<SourceView, string>} */
const texts = new WeakMap();

/** @param {SourceView} source */
function searched(source) {
  let words = texts.get(source);
  if (words === undefined) {
    words = [source.name, source.id, source.group, source.site, ...source.tags].join("\n").toLowerCase();
    texts.set(source, words);
  }
  return words;
}

/** @type {Record<string, (a: SourceView, b: SourceView) => number>} */
const COMPARE = {
  order: () => 0, // as the server sends them
  worst: (a, b) => rank(a) - rank(b),
  name: (a, b) => EVERY_NAME.compare(a.name, b.name),
  group: (a, b) => EVERY_NAME.compare(a.group || "\uffff", b.group || "\uffff"),
  rate: (a, b) => a.fps - b.fps,
};

export class SourceFilter {
  /**
   * @param {string} view its name
   * @param {() => void} changed called when the user has changed the choice
   * @param {{ sort?: string, folds?: boolean, further?: () => Record<string, string> }} about the usual sort; whether the
   *   choices are behind a button; further parameters of the view's address
   */
  constructor(view, changed, { sort = "order", folds = false, further = () => ({}) }) {
    this.view = view;
    this.changed = changed;
    this.further = further;
    this.usualSort = sort;
    /** @type {Record<Key, string>} */
    this.chosen = { words: "", state: "", group: "", site: "", tag: "", sort: "" };
    /** @type {Record<string, string>} */
    this.offered = {};
    /** @type {number | undefined} */
    this.typing = undefined;
    this.search = make("input", { type: "search", class: "filter-words", placeholder: t("filter.words"), "aria-label": t("filter.words"),
      maxlength: 200, autocomplete: "off", spellcheck: "false", oninput: () => this.typed() });
    /** @type {Record<string, HTMLSelectElement>} */
    this.selects = Object.fromEntries(CHOICES.map((key) => [key, make("select", { "aria-label": t(`filter.${key}`), hidden: true,
      onchange: (/** @type {Event} */ event) => this.choose(key, /** @type {HTMLSelectElement} */ (event.target).value) })]));
    this.clear = make("button", { type: "button", class: "small", hidden: true, onclick: () => this.reset() }, t("filter.clear"));
    this.count = make("span", { class: "filter-count", role: "status" });
    this.choices = make("div", { class: "filter-choices" }, ...CHOICES.map((key) => this.selects[key]), this.clear);
    this.unfold = make("button", { type: "button", class: "small filter-more", "aria-expanded": "false", onclick: () => {
      const open = this.element.classList.toggle("open");
      this.unfold.setAttribute("aria-expanded", String(open));
    } }, t("filter.more"));
    this.element = make("form", { class: folds ? "source-filter folds" : "source-filter", role: "search", "aria-label": t("filter.title"),
      onsubmit: (/** @type {Event} */ event) => event.preventDefault() }, this.search, this.unfold, this.choices, this.count);
  }

  /** @param {URLSearchParams} params of the address */
  read(params) {
    for (const key of KEYS) this.chosen[key] = params.get(key) ?? "";
    if (!SORTS.includes(this.chosen.sort)) this.chosen.sort = "";
    this.search.value = this.chosen.words;
    this.offered = {};
    this.link();
  }

  /** What is chosen, for an address. */
  get params() {
    return Object.fromEntries(KEYS.filter((key) => this.chosen[key]).map((key) => [key, this.chosen[key]]));
  }

  /** Whether it leaves out cameras. */
  get active() {
    return KEYS.some((key) => key !== "sort" && this.chosen[key] !== "");
  }

  get sort() {
    return this.chosen.sort || this.usualSort;
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.choose("words", this.search.value.trim()), TYPED_MS);
  }

  /**
   * @param {Key} key
   * @param {string} value
   */
  choose(key, value) {
    this.chosen[key] = key === "sort" && value === this.usualSort ? "" : value;
    this.remember();
    this.changed();
  }

  reset() {
    for (const key of KEYS) if (key !== "sort") this.chosen[key] = "";
    this.search.value = "";
    this.offered = {};
    this.remember();
    this.changed();
    this.search.focus();
  }

  remember() {
    const shown = location.hash.replace(/^#\/?/, "").split("?")[0];
    if (shown && shown !== this.view) return; // the user went on meanwhile
    history.replaceState(null, "", address(this.view, { ...this.params, ...this.further() }));
    this.link();
  }

  // Lets the navigation keep the choice.
  link() {
    for (const name of VIEWS) document.querySelector(`#views a[data-view="${name}"]`)?.setAttribute("href", address(name, this.params));
  }

  /**
   * The sources that match, sorted; offers the choices that the sources have.
   * @param {SourceView[]} sources
   */
  apply(sources) {
    this.offer(sources);
    const { words, state, group, site, tag } = this.chosen, parts = words.toLowerCase().split(/\s+/).filter(Boolean);
    const matching = sources.filter((source) => parts.every((part) => searched(source).includes(part))
      && (!state || (state === PROBLEM ? isProblem(source) : condition(source) === state))
      && (!group || (source.group || NONE) === group) && (!site || (source.site || NONE) === site) && (!tag || source.tags.includes(tag)));
    if (this.sort !== "order") matching.sort(COMPARE[this.sort]);
    text(this.count, this.active ? t("filter.count", { n: matching.length, all: sources.length }) : "");
    this.clear.hidden = !this.active;
    return matching;
  }

  /** @param {SourceView[]} sources */
  offer(sources) {
    /** @type {Record<string, number>} */
    const states = {};
    let problems = 0;
    for (const source of sources) {
      states[condition(source)] = (states[condition(source)] ?? 0) + 1;
      if (isProblem(source)) problems += 1;
    }
    const stateChoices = CONDITIONS.filter((name) => states[name]).map((name) => [name, t("filter.counted", { name: named("state", name), n: states[name] })]);
    this.options("state", [[PROBLEM, t("filter.counted", { name: t("filter.problems"), n: problems })], ...stateChoices]);
    this.options("group", this.valuesOf(sources.map((source) => source.group), "filter.noGroup"));
    this.options("site", this.valuesOf(sources.map((source) => source.site), "filter.noSite"));
    this.options("tag", [...new Set(sources.flatMap((source) => source.tags))].sort(EVERY_NAME.compare).map((tag) => [tag, tag]));
    this.options("sort", SORTS.map((sort) => [sort, t(`filter.sort.${sort}`)]));
  }

  /**
   * @param {string[]} values of all sources
   * @param {string} none the key of the text for those without one
   * @returns {string[][]}
   */
  valuesOf(values, none) {
    const all = [...new Set(values)].filter(Boolean).sort(EVERY_NAME.compare).map((value) => [value, value]);
    return all.length && values.includes("") ? [...all, [NONE, t(none)]] : all;
  }

  /**
   * Fills a select if its choices are others than before.
   * @param {Key} key
   * @param {string[][]} choices values and their texts
   */
  options(key, choices) {
    const select = this.selects[key], now = key === "sort" ? this.sort : this.chosen[key];
    const all = now && !choices.some(([value]) => value === now) ? [...choices, [now, now]] : choices;
    const signature = JSON.stringify(all);
    if (signature !== this.offered[key] && document.activeElement !== select) {
      this.offered[key] = signature;
      const any = key === "sort" ? [] : [make("option", { value: "" }, t(`filter.any.${key}`))];
      select.replaceChildren(...any, ...all.map(([value, label]) => make("option", { value }, label)));
    }
    select.value = now;
    select.hidden = all.length === 0;
    select.classList.toggle("chosen", key !== "sort" && now !== "");
  }
}

/**
 * The options of a choice of one camera: by name, in groups.
 * @param {string[]} ids
 * @param {SourceView[]} sources that are there, with their groups
 * @param {string} words that the names or ids contain
 * @returns {HTMLElement[]}
 */
export function cameraOptions(ids, sources, words = "") {
  const groups = new Map(sources.map((source) => [source.id, source.group]));
  const wanted = words.toLowerCase();
  const shown = ids.filter((id) => !wanted || `${nameOf(id)}\n${id}`.toLowerCase().includes(wanted));
  /** @type {Map<string, HTMLElement[]>} */
  const byGroup = new Map();
  for (const id of shown) {
    const group = groups.get(id) ?? "", option = make("option", { value: id }, nameOf(id));
    byGroup.set(group, [...(byGroup.get(group) ?? []), option]);
  }
  const alone = byGroup.get("") ?? [];
  byGroup.delete("");
  return [...alone, ...[...byGroup].sort(([a], [b]) => EVERY_NAME.compare(a, b)).map(([group, options]) => make("optgroup", { label: group }, ...options))];
}

/**
 * A search box for a choice of one camera; it is there where there are many.
 * @param {(words: string) => void} search called with what the user looks for
 */
export function cameraSearch(search) {
  /** @type {HTMLInputElement} */
  const input = make("input", { type: "search", class: "camera-search", placeholder: t("filter.find"), "aria-label": t("filter.find"), maxlength: 100,
    autocomplete: "off", hidden: true, oninput: () => search(input.value.trim()) });
  return { input, offer: (/** @type {number} */ count) => { input.hidden = count <= MANY; } };
}
