// The overview: cameras with pictures where they are few, else a compact tile for each, in groups, with what is wrong at the top.

import { Tile, setRecorded } from "./camera_tile.js";
import { condition, isProblem, named, problemText, rank, stateWord } from "./condition.js";
import { $, arrange, make, text } from "./dom.js";
import { actionIcon } from "./icons.js";
import { Peek } from "./peek.js";
import { SourceFilter } from "./source_filter.js";
import { openSource } from "./source_form.js";
import { t } from "./strings.js";

/** @typedef {import("./types").SourceView} SourceView */

const FEW = 12; // cameras that are shown with pictures unless the user chooses
const SEARCHED = 8; // cameras from which on there is a search
const MOST_PROBLEMS = 12; // problems at the top; a button shows the others
const STORE = "streamkit.overview";
const DENSITIES = ["compact", "pictures"];

/** @type {SourceView[]} */
let sources = [];
/** @type {Map<string, Section>} */
const sections = new Map();
/** @type {Tile | null} */
let detail = null; // of the camera that is chosen in the compact overview
let density = ""; // as chosen by the user; empty for the usual one
/** @type {Set<string>} */
let folded = new Set();
/** @type {HTMLElement | null} */
let opener = null; // what the focus returns to

try {
  const stored = JSON.parse(localStorage.getItem(STORE) ?? "{}");
  density = DENSITIES.includes(stored.density) ? stored.density : "";
  folded = new Set(Array.isArray(stored.folded) ? stored.folded : []);
} catch { /* no storage: nothing is folded */ }

function store() {
  try {
    localStorage.setItem(STORE, JSON.stringify({ density, folded: [...folded] }));
  } catch { /* no storage: it lasts as long as the page */ }
}

const peek = new Peek($("peek"));
const filter = new SourceFilter("home", show, { sort: "worst" });
const densities = DENSITIES.map((name) => make("button", { type: "button", class: "icon-button", "aria-label": t(`overview.${name}`), title: t(`overview.${name}`), onclick: () => {
  density = name;
  store();
  closeDetail();
  show();
} }, actionIcon(name)));
$("home-tools").append(filter.element, make("div", { role: "group", class: "densities", "aria-label": t("overview.density") }, ...densities));
const noMatch = make("p", { class: "empty", hidden: true }, t("filter.none"));
const attention = make("section", { class: "attention", "aria-labelledby": "attention-title", hidden: true });
const attentionTitle = make("h3", { id: "attention-title" });
const attentionList = make("ul", { class: "worries" });
const attentionMore = make("button", { type: "button", class: "small", hidden: true, onclick: () => filter.choose("state", "problem") });
attention.append(attentionTitle, attentionList, attentionMore);
$("wall").before(noMatch, attention);
$("add").addEventListener("click", () => openSource(null));

/** The tile of a camera in the compact overview. */
class Chip {
  /** @param {string} id */
  constructor(id) {
    this.id = id;
    /** @type {SourceView | null} */
    this.source = null;
    this.label = make("span", { class: "chip-name" });
    this.word = make("span", { class: "chip-word" });
    /** @type {HTMLElement} */
    this.button = make("button", { type: "button", class: "chip", "data-source": id, onclick: () => openDetail(id, this.button) },
      make("span", { class: "dot" }), this.label, this.word);
    peek.follow(this.button, () => this.source);
    this.element = make("li", {}, this.button);
  }

  /** @param {SourceView} source */
  update(source) {
    if (this.source === source) return;
    this.source = source;
    const running = source.state === "running" && !source.quiet_s;
    text(this.label, source.name);
    text(this.word, running ? String(Math.round(source.fps)) : named(source.cause ? "cause" : "state", source.cause ?? condition(source)));
    this.button.className = `chip ${isProblem(source) ? "bad" : source.state}`;
    this.button.setAttribute("aria-label", running ? t("overview.chip", { name: source.name, state: stateWord(source), n: source.fps.toFixed(1) })
      : t("overview.chipProblem", { name: source.name, state: stateWord(source), problem: problemText(source) }));
  }

  gone() {
    this.element.remove();
  }
}

/** The cameras of a group, below a heading that folds them. */
class Section {
  /** @param {string} group */
  constructor(group) {
    this.group = group;
    /** @type {Map<string, Chip | Tile>} */
    this.tiles = new Map();
    this.compact = false;
    this.count = make("span", { class: "count" });
    this.problems = make("span", { class: "group-problems" });
    this.button = make("button", { type: "button", class: "fold", onclick: () => this.fold() }, make("span", { class: "arrow", "aria-hidden": "true" }),
      make("span", {}, group || t("overview.ungrouped")), this.count, this.problems);
    this.heading = make("h3", { class: "group-title" }, this.button);
    this.list = make("ul");
    this.element = make("section", { class: "group", "aria-label": group || t("overview.ungrouped") }, this.heading, this.list);
  }

  fold() {
    if (folded.has(this.group)) folded.delete(this.group);
    else folded.add(this.group);
    store();
    show();
  }

  /**
   * @param {SourceView[]} members
   * @param {boolean} compact
   * @param {boolean} grouped whether there are groups
   */
  update(members, compact, grouped) {
    const open = !grouped || !folded.has(this.group), problems = members.filter(isProblem).length;
    if (compact !== this.compact) this.empty();
    this.compact = compact;
    this.heading.hidden = !grouped;
    this.button.setAttribute("aria-expanded", String(open));
    text(this.count, String(members.length));
    text(this.problems, problems ? t("overview.problems", { n: problems }) : "");
    this.list.className = compact ? "chips" : "wall";
    this.list.hidden = !open;
    this.element.style.setProperty("--members", String(members.length));
    const shown = open ? members : [], ids = new Set(shown.map(({ id }) => id));
    for (const [id, tile] of this.tiles) {
      if (ids.has(id)) continue;
      tile.gone();
      this.tiles.delete(id);
    }
    const elements = shown.map((source) => {
      let tile = this.tiles.get(source.id);
      if (!tile) this.tiles.set(source.id, tile = compact ? new Chip(source.id) : new Tile(source.id));
      tile.update(source);
      return tile.element;
    });
    arrange(this.list, elements);
  }

  empty() {
    this.tiles.forEach((tile) => tile.gone());
    this.tiles.clear();
  }

  gone() {
    this.empty();
    this.element.remove();
  }
}

// Shows what has changed; nothing while another view is open.
function show() {
  const home = $("home");
  if (home.hidden) return;
  const compact = density ? density === "compact" : sources.length > FEW;
  const matching = filter.apply(sources);
  home.classList.toggle("compact", compact);
  $("home-tools").hidden = sources.length <= SEARCHED && !filter.active;
  densities.forEach((button, place) => button.setAttribute("aria-pressed", String(compact === (DENSITIES[place] === "compact"))));
  $("nothing").hidden = sources.length > 0;
  noMatch.hidden = matching.length > 0 || sources.length === 0;
  text($("count"), sources.length ? String(sources.length) : "");
  showAttention(compact && filter.chosen.state === "" ? matching.filter(isProblem) : []);
  showGroups(matching, compact);
  if (detail) {
    const source = sources.find(({ id }) => id === detail?.id);
    if (source) detail.update(source);
    else closeDetail();
  }
}

/**
 * @param {SourceView[]} matching
 * @param {boolean} compact
 */
function showGroups(matching, compact) {
  const wall = $("wall");
  /** @type {Map<string, SourceView[]>} */
  const groups = new Map();
  for (const source of matching) {
    const members = groups.get(source.group);
    if (members) members.push(source);
    else groups.set(source.group, [source]);
  }
  const names = [...groups.keys()].sort((a, b) => Number(a === "") - Number(b === "") || a.localeCompare(b, undefined, { numeric: true }));
  for (const [name, section] of sections) {
    if (groups.has(name)) continue;
    section.gone();
    sections.delete(name);
  }
  const grouped = sources.some(({ group }) => group !== "");
  names.forEach((name, place) => {
    let section = sections.get(name);
    if (!section) sections.set(name, section = new Section(name));
    section.update(groups.get(name) ?? [], compact, grouped);
    if (wall.children[place] !== section.element) wall.insertBefore(section.element, wall.children[place] ?? null);
  });
}

/** @param {SourceView[]} problems */
function showAttention(problems) {
  const worst = [...problems].sort((a, b) => rank(a) - rank(b)).slice(0, MOST_PROBLEMS);
  attention.hidden = problems.length === 0;
  text(attentionTitle, `${t("overview.attention")} ${problems.length}`);
  worst.forEach((source, place) => {
    let item = attentionList.children[place];
    if (!item) {
      /** @type {HTMLElement} */
      const button = make("button", { type: "button", class: "worry", onclick: () => openDetail(button.dataset.source ?? "", button) },
        make("strong"), make("span", { class: "worry-state" }), make("span", { class: "worry-text" }));
      attentionList.append(item = make("li", {}, button));
      peek.follow(button, () => sources.find(({ id }) => id === button.dataset.source) ?? null);
    }
    const button = /** @type {HTMLElement} */ (item.firstElementChild), [name, state, words] = button.children;
    button.dataset.source = source.id;
    text(name, source.name);
    text(state, [stateWord(source), source.group].filter(Boolean).join(" · "));
    text(words, problemText(source));
  });
  while (attentionList.children.length > worst.length) attentionList.lastElementChild?.remove();
  attentionMore.hidden = problems.length <= worst.length;
  text(attentionMore, t("overview.more", { n: problems.length - worst.length }));
}

/**
 * Opens a camera beside the compact overview: its picture, its figures and what can be done.
 * @param {string} id
 * @param {HTMLElement} from what the focus returns to
 */
function openDetail(id, from) {
  const source = sources.find((candidate) => candidate.id === id);
  if (!source) return;
  closeDetail(false);
  peek.hide();
  opener = from;
  detail = new Tile(id);
  detail.update(source);
  const facts = [source.id === source.name ? "" : source.id, source.group, source.site, ...source.tags].filter(Boolean).join(" · ");
  $("camera-detail").replaceChildren(
    make("div", { class: "detail-head" }, make("span", { class: "faint" }, facts),
      make("button", { type: "button", class: "small", onclick: () => closeDetail() }, t("page.close"))),
    make("ul", {}, detail.element));
  $("camera-detail").hidden = false;
  $("camera-detail").focus({ preventScroll: true });
  document.querySelector(`.chip[data-source="${CSS.escape(id)}"]`)?.setAttribute("aria-current", "true");
}

/** @param {boolean} [focus] whether the focus returns to where it was */
function closeDetail(focus = true) {
  if (!detail) return;
  document.querySelector('.chip[aria-current="true"]')?.removeAttribute("aria-current");
  detail.gone();
  detail = null;
  $("camera-detail").hidden = true;
  $("camera-detail").replaceChildren();
  if (focus && opener?.isConnected) opener.focus();
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && detail && !document.querySelector("dialog[open]")) closeDetail();
});

// The address chooses what is shown; one such as #/home?source=gate leads to that camera.
function follow() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?"), params = new URLSearchParams(query);
  if (path !== "home") {
    closeDetail(false);
    peek.hide();
    return;
  }
  filter.read(params);
  show();
  const id = params.get("source");
  const element = id && document.querySelector(`#wall [data-source="${CSS.escape(id)}"]`);
  if (!element) return;
  element.scrollIntoView({ block: "center" });
  if (element.matches(".chip")) openDetail(id, /** @type {HTMLElement} */ (element));
}

addEventListener("hashchange", () => queueMicrotask(follow)); // after the router has shown the view

let first = true;

/**
 * @param {SourceView[]} now all sources
 * @param {boolean} recorded whether a stage records clips
 */
export function showSources(now, recorded) {
  sources = now;
  setRecorded(recorded);
  if (first) follow();
  else show();
  first = false;
}

