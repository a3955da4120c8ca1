// The view `review`: what happened, one card for each incident, and one item with its picture, path, clip and notes.

import { lookForAlerts, onAlerts, setSound, soundOn } from "../alerts.js";
import { call, get } from "../api.js";
import { make, number, say, text, why } from "../dom.js";
import { address } from "../router.js";
import { askToken, signedIn } from "../session.js";
import { t } from "../strings.js";
import { lasted, openItem } from "./review-detail.js";
import { moment } from "./shared.js";

/** @typedef {import("../types").ReviewView} ReviewView */

const PAGE = 48, TYPED_MS = 300;
const TABS = ["alert", "notice", "all", "kept"];

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  const view = new ReviewPage(root, params);
  view.load();
  return view;
}

/**
 * The start of a day by the local clock, in seconds since 1970.
 * @param {string} date as 2026-11-28
 * @param {number} days later
 */
function dayStart(date, days) {
  const [year, month, day] = date.split("-").map(Number);
  return new Date(year, month - 1, day + days).getTime() / 1000;
}

class ReviewPage {
  /**
   * @param {HTMLElement} root
   * @param {URLSearchParams} params
   */
  constructor(root, params) {
    const tab = params.get("tab") ?? "";
    this.tab = TABS.includes(tab) ? tab : "alert";
    this.id = Number(params.get("item")) || null;
    /** @type {ReviewView[]} */
    this.items = [];
    this.turn = 0;
    this.loading = this.ended = this.closed = false;
    this.listed = "";
    this.wanted = params.get("source") ?? "";
    /** @type {number | undefined} */
    this.typing = undefined;
    /** @type {{ close: () => void } | null} */
    this.shown = null;
    /** @type {Map<string, HTMLButtonElement>} */
    this.tabs = new Map(TABS.map((name) => [name, make("button", { type: "button", role: "tab", id: `review-tab-${name}`, "aria-controls": "review-list",
      onclick: () => this.choose(name), onkeydown: (event) => this.tabKey(event, name) }, t(`review.tab.${name}`))]));
    this.text = this.field("text", { type: "search", maxlength: 200, autocomplete: "off", oninput: () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.load(), TYPED_MS);
    } }, params);
    this.from = this.field("from", { type: "date", onchange: () => this.load() }, params);
    this.to = this.field("to", { type: "date", onchange: () => this.load() }, params);
    this.source = make("select", { id: "review-source", onchange: () => { this.wanted = this.source.value; this.load(); } });
    this.seen = make("input", { type: "checkbox", id: "review-seen", checked: params.has("seen"), onchange: () => this.load() });
    this.sound = make("input", { type: "checkbox", id: "review-sound", checked: soundOn(), onchange: (event) => setSound(event.target.checked) });
    this.problem = make("p", { class: "error", role: "alert" });
    this.list = make("ol", { class: "review-list", id: "review-list", "aria-label": t("review.list") });
    this.tail = make("p", { class: "tail", role: "status" });
    this.detail = make("aside", { class: "review-detail", "aria-label": t("review.detail"), tabindex: -1 });
    this.build(root);
    this.stopFollowing = onAlerts(() => this.news());
    this.sight = new IntersectionObserver((entries) => entries.some(({ isIntersecting }) => isIntersecting) && this.more(), { rootMargin: "600px" });
    this.sight.observe(this.tail);
    if (this.id) this.select(this.id, false);
    else this.showNothing();
  }

  /**
   * @param {string} name
   * @param {Record<string, any>} attributes
   * @param {URLSearchParams} params
   */
  field(name, attributes, params) {
    const input = make("input", { id: `review-${name}`, ...attributes });
    input.value = params.get(name) ?? "";
    return input;
  }

  /** @param {HTMLElement} root */
  build(root) {
    /** @param {HTMLElement} input @param {string} words */
    const field = (input, words) => make("div", {}, make("label", { for: input.id }, words), input);
    /** @param {HTMLElement} input @param {string} words */
    const check = (input, words) => make("div", { class: "check" }, input, make("label", { for: input.id }, words));
    root.append(make("div", { class: "review-view" },
      make("div", { class: "title" }, make("h2", {}, t("review.title")),
        make("button", { type: "button", class: "small", "data-needs": "operator", onclick: () => this.markAll() }, t("review.markAll"))),
      this.problem,
      make("div", { class: "review-tabs", role: "tablist", "aria-label": t("review.tabs") }, ...this.tabs.values()),
      make("form", { class: "review-filters", role: "search", "aria-label": t("review.filters"), onsubmit: (event) => event.preventDefault() },
        field(this.text, t("review.text")), field(this.source, t("review.source")), field(this.from, t("review.from")), field(this.to, t("review.to")),
        check(this.seen, t("review.seen")), check(this.sound, t("review.sound"))),
      make("div", { class: "review-columns" }, make("div", { role: "tabpanel", "aria-label": t("review.list") }, this.list, this.tail), this.detail)));
    this.listCameras([]);
    this.markTab();
  }

  // ---------------------------------------------------------------------------------------------------------- filters

  /** @param {string} name */
  choose(name) {
    this.tab = name;
    this.items = [];
    this.markTab();
    this.load();
  }

  /** @param {KeyboardEvent} event @param {string} name */
  tabKey(event, name) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = TABS[(TABS.indexOf(name) + by + TABS.length) % TABS.length];
    this.choose(next);
    this.tabs.get(next)?.focus();
  }

  markTab() {
    for (const [name, button] of this.tabs) {
      button.setAttribute("aria-selected", String(name === this.tab));
      button.tabIndex = name === this.tab ? 0 : -1;
    }
  }

  /** @param {{ id: string, name: string }[]} sources */
  listCameras(sources) {
    const key = JSON.stringify(sources.map(({ id, name }) => [id, name]));
    if (key === this.listed) return;
    this.listed = key;
    this.source.replaceChildren(make("option", { value: "" }, t("review.every")), ...sources.map(({ id, name }) => make("option", { value: id }, name)));
    if (this.wanted && !sources.some(({ id }) => id === this.wanted)) this.source.append(make("option", { value: this.wanted }, this.wanted));
    this.source.value = this.wanted;
  }

  /** @param {Record<string, string | number>} more */
  query(more) {
    /** @type {Record<string, string>} */
    const values = { limit: String(Math.min(500, Math.max(PAGE, this.items.length))) }; // after a mark, as many as before
    if (this.tab === "alert" || this.tab === "notice") values.severity = this.tab;
    if (this.tab === "kept") values.kept = "true";
    else if (!this.seen.checked) values.reviewed = "false";
    if (this.wanted) values.source = this.wanted;
    if (this.text.value.trim()) values.text = this.text.value.trim();
    if (this.from.value) values.from = String(dayStart(this.from.value, 0));
    if (this.to.value) values.to = String(dayStart(this.to.value, 1));
    for (const [name, value] of Object.entries(more)) values[name] = String(value);
    return new URLSearchParams(values);
  }

  remember() {
    if (this.closed) return; // the address is that of the next view
    /** @type {Record<string, string | number>} */
    const values = this.tab === "alert" ? {} : { tab: this.tab };
    for (const [name, value] of [["text", this.text.value], ["source", this.wanted], ["from", this.from.value], ["to", this.to.value]]) if (value) values[name] = value;
    if (this.seen.checked) values.seen = 1;
    if (this.id) values.item = this.id;
    history.replaceState(null, "", address("review", values));
  }

  // ------------------------------------------------------------------------------------------------------------- list

  async load() {
    if (this.closed) return;
    const turn = this.turn += 1;
    this.remember();
    this.ended = false;
    this.loading = true;
    try {
      const items = await get(`/api/v1/review?${this.query({})}`);
      if (turn !== this.turn || this.closed) return;
      text(this.problem, "");
      this.show(items);
    } catch (/** @type {any} */ trouble) {
      if (turn === this.turn && !trouble.away) text(this.problem, why(trouble));
    } finally {
      if (turn === this.turn) this.loading = false;
    }
    this.counts();
  }

  /** @param {ReviewView[]} items */
  show(items) {
    this.items = items;
    this.ended = items.length < PAGE;
    this.sight.unobserve(this.tail); // it reports again if the tail is still in sight
    this.sight.observe(this.tail);
    this.list.replaceChildren(...items.map((item) => this.card(item)));
    this.showTail();
  }

  async more() {
    if (this.loading || this.ended || !this.items.length) return;
    const turn = this.turn;
    this.loading = true;
    try {
      const items = await get(`/api/v1/review?${this.query({ before: this.items[this.items.length - 1].id, limit: PAGE })}`);
      if (turn !== this.turn || this.closed) return;
      this.items.push(...items);
      this.ended = items.length < PAGE;
      this.list.append(...items.map((/** @type {ReviewView} */ item) => this.card(item)));
      this.showTail();
    } catch { /* the page says that the server is away */ } finally {
      if (turn === this.turn) this.loading = false;
    }
  }

  showTail() {
    const filtered = Boolean(this.text.value || this.wanted || this.from.value || this.to.value);
    const none = t(filtered || this.tab === "kept" ? "review.noneFound" : "review.none");
    text(this.tail, this.items.length ? t(this.ended ? "review.end" : "review.loading") : none);
  }

  /** @param {ReviewView} item */
  card(item) {
    const shot = make("span", { class: "shot" }), when = new Date(item.started_s * 1000);
    if (item.image && signedIn) {
      /** @type {HTMLImageElement} */
      const image = make("img", { loading: "lazy", alt: "", src: `/api/v1/review/${item.id}/crop.jpg`, onerror: () => image.replaceWith(t("review.nopicture")) });
      shot.append(image);
    } else {
      shot.append(t(item.image ? "review.signin" : "review.nopicture"));
    }
    const notes = [...(item.reviewed_by === null ? [] : [t("review.by", { name: item.reviewed_by })]), ...(item.kept ? [t("review.kept")] : [])];
    const words = make("span", { class: "what" }, make("strong", {}, item.text),
      make("small", {}, make("time", { datetime: when.toISOString() }, moment(item.started_s)), ` · ${item.name} · ${lasted(item)}`),
      ...(notes.length ? [make("small", { class: "notes" }, notes.join(" · "))] : []));
    const card = make("button", { type: "button", class: "review-card", "data-id": item.id, "aria-current": item.id === this.id ? "true" : null,
      onclick: () => this.select(item.id, true) }, shot, words);
    const row = make("li", { class: `${item.severity} ${item.reviewed_by === null ? "" : "seen"}` }, card);
    if (item.reviewed_by === null) {
      row.append(make("button", { type: "button", class: "small mark", "data-needs": "operator", "aria-label": t("review.markOf", { text: item.text }),
        title: t("review.mark"), onclick: () => this.mark([item.id]) }, "✓"));
    }
    return row;
  }

  /** @param {number[]} ids */
  async mark(ids) {
    if (!signedIn) return askToken();
    try {
      await call("POST", "/api/v1/review/reviewed", { ids });
      if (ids.length > 1) say(t("review.marked", { n: number(ids.length) }));
      await Promise.all([this.load(), lookForAlerts()]);
    } catch (trouble) {
      text(this.problem, why(trouble));
    }
  }

  markAll() {
    const ids = this.items.filter((item) => item.reviewed_by === null).map(({ id }) => id);
    if (ids.length) this.mark(ids.slice(0, 500));
  }

  async news() {
    if (document.activeElement instanceof HTMLElement && this.list.contains(document.activeElement)) return this.counts(); // keep the focus
    if (scrollY < 200) await this.load();
  }

  async counts() {
    const open = await get("/api/v1/review/open").catch(() => null);
    if (!open || this.closed) return;
    for (const severity of ["alert", "notice"]) {
      const n = Object.values(/** @type {Record<string, number>} */ (open[severity])).reduce((total, value) => total + value, 0);
      const tab = this.tabs.get(severity);
      if (tab) text(tab, n ? `${t(`review.tab.${severity}`)} (${number(n)})` : t(`review.tab.${severity}`));
    }
  }

  // ----------------------------------------------------------------------------------------------------------- detail

  /**
   * @param {number} id
   * @param {boolean} focus
   */
  async select(id, focus) {
    this.id = id;
    this.remember();
    for (const card of /** @type {NodeListOf<HTMLElement>} */ (this.list.querySelectorAll(".review-card"))) {
      if (Number(card.dataset.id) === id) card.setAttribute("aria-current", "true");
      else card.removeAttribute("aria-current");
    }
    try {
      const { item, events } = await get(`/api/v1/review/${id}`);
      if (this.closed || this.id !== id) return;
      this.shown?.close();
      this.detail.classList.add("open");
      this.shown = openItem(this.detail, item, events, { close: () => this.unselect(),
        changed: () => { this.select(id, false); this.load(); lookForAlerts().catch(() => null); },
        deleted: () => { this.unselect(); this.load(); lookForAlerts().catch(() => null); } });
      if (focus) this.detail.focus({ preventScroll: true });
    } catch (/** @type {any} */ trouble) {
      if (this.closed || this.id !== id) return;
      this.showNothing(trouble.status === 404 ? t("review.gone", { id }) : why(trouble));
    }
  }

  /** @param {string} [words] */
  showNothing(words = t("review.pick")) {
    this.shown?.close();
    this.shown = null;
    this.detail.classList.remove("open");
    this.detail.replaceChildren(make("p", { class: "empty" }, words));
  }

  unselect() {
    /** @type {HTMLElement | null} */
    const card = this.list.querySelector(`[data-id="${this.id}"]`);
    this.id = null;
    this.remember();
    card?.removeAttribute("aria-current");
    this.showNothing();
    card?.focus();
  }

  /** @param {import("./index.js").State} state */
  update({ sources }) {
    this.listCameras(sources);
  }

  close() {
    this.closed = true;
    clearTimeout(this.typing);
    this.sight.disconnect();
    this.stopFollowing();
    this.shown?.close();
  }
}
