// The view `events`: filters, a timeline of each camera, an endless list, and one event with its picture and its clip.

import { get } from "../api.js";
import { now_s } from "../clock.js";
import { make, say, text } from "../dom.js";
import { allSources, nameOf } from "../names.js";
import { address } from "../router.js";
import { signedIn } from "../session.js";
import { cameraOptions, cameraSearch } from "../source_filter.js";
import { t } from "../strings.js";
import { openDetail } from "./event-detail.js";
import { moment } from "./shared.js";
import { drawTimeline } from "./timeline.js";

/** @typedef {import("../types").EventView} EventView */
/** @typedef {"source" | "stage" | "kind" | "label"} Choice */

const PAGE = 50, SOON_MS = 400, TIMELINE_EVERY_MS = 15000, NAMES_EVERY_MS = 30000, TYPED_MS = 300;
/** @type {Choice[]} */
const CHOICES = ["source", "stage", "kind", "label"];
/** @type {Record<string, number>} */
const PERIODS = { hour: 3600, day: 86400, week: 7 * 86400, month: 30 * 86400 };

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params
 */
export function open(root, params) {
  const view = new EventsPage(root, params);
  view.begin();
  return view;
}

class EventsPage {
  /**
   * @param {HTMLElement} root
   * @param {URLSearchParams} params
   */
  constructor(root, params) {
    this.filters = Object.fromEntries([...CHOICES, "text", "period", "from", "to"].map((name) => [name, params.get(name) ?? ""]));
    this.number = Number(params.get("number")) || null;
    this.at = Number(params.get("at")) || null;
    /** @type {EventView[]} */
    this.events = [];
    this.turn = 0;
    this.loading = false;
    this.ended = false;
    this.last = -1;
    this.closed = false;
    /** @type {number[]} */
    this.timers = [];
    this.emits = ["?"];
    /** @type {import("../types").EventNames | null} */
    this.known = null;
    /** @type {{ close: () => void } | null} */
    this.shown = null;
    /** @type {number | null} */
    this.waiting = null;
    /** @type {number | undefined} */
    this.typing = undefined;
    this.text = make("input", { type: "search", id: "events-text", maxlength: 200, placeholder: t("events.text.hint"), autocomplete: "off",
      oninput: () => this.typed() });
    this.text.value = this.filters.text;
    this.selects = Object.fromEntries(CHOICES.map((name) => [name, make("select", { id: `events-${name}`, onchange: (event) => this.set(name, event.target.value) })]));
    this.cameras = cameraSearch(() => this.options("source", this.known?.sources ?? []));
    this.period = make("select", { id: "events-period", onchange: (event) => this.setPeriod(event.target.value) });
    for (const name of CHOICES) this.options(name, []);
    this.showPeriod();
    /** @type {(id: string, label: string, input: HTMLElement) => HTMLElement} */
    const field = (id, label, input) => make("div", { class: "filter" }, make("label", { for: id }, label), input, ...(id === "events-source" ? [this.cameras.input] : []));
    this.clear = make("button", { type: "button", onclick: () => this.reset() }, t("events.clear"));
    this.problem = make("p", { class: "problem", role: "alert", hidden: true });
    this.timeline = make("div", { class: "timeline" });
    this.list = make("ol", { class: "event-list", "aria-label": t("events.list") });
    this.tail = make("p", { class: "tail", role: "status" });
    this.detail = make("aside", { class: "event-detail", "aria-label": t("events.detail"), tabindex: -1 });
    root.append(make("div", { class: "events-view" },
      make("div", { class: "title" }, make("h2", {}, t("events.title")), make("a", { href: address("charts") }, t("events.charts"))),
      this.problem,
      make("form", { class: "event-filters", role: "search", "aria-label": t("events.filters"), onsubmit: (event) => event.preventDefault() },
        field("events-text", t("events.text"), this.text),
        ...CHOICES.map((name) => field(`events-${name}`, t(`events.${name}`), this.selects[name])),
        field("events-period", t("events.period"), this.period), this.clear),
      make("section", { class: "timelines", "aria-label": t("events.timeline") }, this.timeline),
      make("div", { class: "event-columns" }, make("div", { class: "event-main" }, this.list, this.tail), this.detail)));
    this.sight = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && this.more(), { rootMargin: "600px" });
    this.sight.observe(this.tail);
  }

  begin() {
    this.names();
    this.reload();
    if (this.number) this.select(this.number, false);
    else if (this.at) this.selectAt(this.at);
    else this.showDetail(null);
    if (signedIn) {
      this.stream = new EventSource("/api/v1/events/stream");
      this.stream.onmessage = () => this.soon();
    }
    this.every(() => this.drawTimeline(), TIMELINE_EVERY_MS);
    this.every(() => this.names(), NAMES_EVERY_MS);
  }

  /**
   * @param {() => void} work
   * @param {number} ms
   */
  every(work, ms) {
    this.timers.push(setInterval(() => document.hidden || work(), ms));
  }

  /** @param {import("./index.js").State} state */
  update(state) {
    this.emits = state.status.emits;
    if (state.status.last_event !== this.last) this.soon();
    this.last = state.status.last_event;
  }

  close() {
    this.closed = true;
    this.stream?.close();
    this.sight.disconnect();
    for (const timer of this.timers) clearInterval(timer);
    if (this.waiting) clearTimeout(this.waiting);
    clearTimeout(this.typing);
    this.shown?.close();
  }

  // ------------------------------------------------------------------------------------------------------- filters

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.set("text", this.text.value.trim()), TYPED_MS);
  }

  /**
   * @param {string} name of a filter
   * @param {string} value
   */
  set(name, value) {
    if (this.filters[name] === value) return;
    this.filters[name] = value;
    this.reload();
  }

  /** @param {string} value */
  setPeriod(value) {
    if (value === "custom") return;
    Object.assign(this.filters, { period: value, from: "", to: "" });
    this.showPeriod();
    this.reload();
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {string} [source]
   */
  setSpan(from, to, source) {
    Object.assign(this.filters, { period: "", from: String(Math.floor(from)), to: String(Math.ceil(to)), source: source ?? this.filters.source });
    this.options("source", this.known?.sources ?? []);
    this.showPeriod();
    this.reload();
  }

  reset() {
    for (const name of Object.keys(this.filters)) this.filters[name] = "";
    this.text.value = "";
    for (const name of CHOICES) this.options(name, this.known?.[`${name}s`] ?? []);
    this.showPeriod();
    this.reload();
  }

  showPeriod() {
    const choice = (/** @type {string} */ value, /** @type {string} */ label) => make("option", { value }, label);
    const choices = [choice("", t("events.period.any")), ...Object.keys(PERIODS).map((name) => choice(name, t(`events.period.${name}`)))];
    const { from, to } = this.filters;
    if (from || to) choices.push(choice("custom", t("events.period.custom", { from: from ? moment(from) : "…", to: to ? moment(to) : "…" })));
    this.period.replaceChildren(...choices);
    this.period.value = from || to ? "custom" : this.filters.period;
  }

  /**
   * @param {Choice} name
   * @param {string[]} values
   */
  options(name, values) {
    const now = this.filters[name];
    const all = now && !values.includes(now) ? [...values, now] : values;
    const words = this.cameras.input.value.trim();
    if (name === "source") this.cameras.offer(all.length);
    const choices = name === "source" ? cameraOptions(words && now ? [now, ...all.filter((id) => id !== now)] : all, allSources(), words) : all.map((one) => make("option", { value: one }, one));
    this.selects[name].replaceChildren(make("option", { value: "" }, t("events.any")), ...choices);
    this.selects[name].value = now;
  }

  async names() {
    try {
      const known = /** @type {import("../types").EventNames} */ (await get("/api/v1/events/names"));
      this.known = known;
      for (const name of CHOICES) if (document.activeElement !== this.selects[name]) this.options(name, known[`${name}s`]);
      const { problem } = await get("/api/v1/events/store");
      text(this.problem, problem);
      this.problem.hidden = !problem;
    } catch { /* the next turn tries again */ }
  }

  /**
   * The query of a request, and the period in seconds.
   * @param {Record<string, string | number>} more
   */
  query(more = {}) {
    const wanted = new URLSearchParams();
    for (const name of [...CHOICES, "text", "from", "to"]) if (this.filters[name]) wanted.set(name, this.filters[name]);
    const span = PERIODS[this.filters.period];
    if (span) wanted.set("from", String(Math.floor(now_s() - span)));
    for (const [name, value] of Object.entries(more)) wanted.set(name, String(value));
    return wanted;
  }

  filtered() {
    return Object.values(this.filters).some(Boolean);
  }

  // Keeps the address up to date: it can be bookmarked and sent.
  remember() {
    const params = Object.fromEntries(Object.entries({ ...this.filters, number: this.number ?? "" }).filter(([, value]) => value !== ""));
    history.replaceState(null, "", address("events", params));
    this.clear.disabled = !this.filtered();
  }

  // ---------------------------------------------------------------------------------------------------------- list

  async reload() {
    this.turn += 1;
    this.loading = this.ended = false;
    this.events = [];
    this.list.replaceChildren();
    this.remember();
    this.drawTimeline();
    await this.more();
  }

  async more() {
    if (this.loading || this.ended || this.closed) return;
    const turn = this.turn;
    this.loading = true;
    text(this.tail, t("events.more"));
    const oldest = this.events.at(-1);
    try {
      /** @type {EventView[]} */
      const found = await get(`/api/v1/events?${this.query({ limit: PAGE, ...(oldest ? { before: oldest.number } : {}) })}`);
      if (turn !== this.turn || this.closed) return;
      this.ended = found.length < PAGE;
      this.events.push(...found);
      this.list.append(...found.map((one) => this.item(one)));
      this.showTail();
    } catch (/** @type {any} */ trouble) {
      if (turn === this.turn) text(this.tail, trouble.message);
    } finally {
      if (turn === this.turn) this.loading = false;
    }
    if (turn === this.turn && !this.ended && this.tail.getBoundingClientRect().top < innerHeight + 600) this.again = setTimeout(() => this.more(), 50);
  }

  showTail() {
    const none = this.filtered() ? "events.none.filtered" : this.emits.length ? "events.none" : "events.none.stages";
    text(this.tail, this.events.length ? (this.ended ? t("events.end") : t("events.more")) : t(none));
    this.tail.classList.toggle("empty", !this.events.length);
  }

  // Several events soon after one another make one request.
  soon() {
    if (this.waiting) return;
    this.waiting = setTimeout(() => {
      this.waiting = null;
      this.newer();
    }, SOON_MS);
  }

  async newer() {
    if (this.loading || this.closed) return;
    const turn = this.turn, newest = this.events[0]?.number ?? 0;
    try {
      /** @type {EventView[]} */
      const found = await get(`/api/v1/events?${this.query({ limit: 200, after: newest })}`);
      if (turn !== this.turn || this.closed || !found.length) return;
      if (found.length === 200) return void this.reload();
      const held = this.events[0]?.number ?? 0; // another request may have come first
      const fresh = found.filter((one) => one.number > held);
      this.events.unshift(...fresh);
      this.list.prepend(...fresh.map((one) => this.item(one)));
      this.showTail();
      if (fresh.length && document.activeElement === document.body) {
        say(fresh.length === 1 ? t("events.new.one") : t("events.new.many", { count: fresh.length }));
      }
    } catch { /* the page says that the server is away */ }
  }

  /** @param {EventView} event */
  item(event) {
    const shot = make("span", { class: "shot" });
    if (event.image && signedIn) {
      /** @type {HTMLImageElement} */
      const image = make("img", { loading: "lazy", alt: "", src: `/api/v1/events/${event.number}/image.jpg`,
        onerror: () => image.replaceWith(t("events.noimage")) });
      shot.append(image);
    } else {
      shot.append(event.image ? t("events.signin") : t("events.noimage"));
    }
    const when = new Date(event.time_s * 1000);
    const small = make("small", {}, make("time", { datetime: when.toISOString() }, moment(event.time_s)), ` · ${nameOf(event.source)} · ${event.stage}`);
    if (event.clip) small.append(" ", make("span", { class: "tag" }, t("events.hasclip")));
    return make("li", {}, make("button", { type: "button", class: "event-row", "data-number": event.number,
      "aria-current": event.number === this.number ? "true" : null, onclick: () => this.select(event.number, true) },
      shot, make("span", { class: "what" }, make("strong", {}, event.text), small)));
  }

  // -------------------------------------------------------------------------------------------------------- detail

  /** @param {number} at_s */
  async selectAt(at_s) {
    const query = this.query({ to: at_s + 0.5, limit: 1 });
    query.delete("text");
    const [found] = await get(`/api/v1/events?${query}`).catch(() => []);
    if (found) this.select(found.number, false);
  }

  /**
   * @param {number} number
   * @param {boolean} focus
   */
  async select(number, focus) {
    this.number = number;
    this.remember();
    this.mark();
    try {
      this.showDetail(await get(`/api/v1/events/${number}`), focus);
    } catch (/** @type {any} */ trouble) {
      this.showDetail(null, false, trouble.status === 404 ? t("events.gone", { number }) : trouble.message);
    }
  }

  mark() {
    for (const row of /** @type {NodeListOf<HTMLElement>} */ (this.list.querySelectorAll(".event-row"))) {
      if (Number(row.dataset.number) === this.number) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
  }

  /**
   * @param {EventView | null} event
   * @param {boolean} focus
   * @param {string} message
   */
  showDetail(event, focus = false, message = t("events.pick")) {
    if (this.closed || (event && event.number !== this.number)) return;
    this.shown?.close();
    this.shown = null;
    this.detail.classList.toggle("open", event !== null || this.number !== null);
    if (!event) {
      this.detail.replaceChildren(make("p", { class: "empty" }, message));
      if (this.number) this.detail.append(make("button", { type: "button", onclick: () => this.unselect() }, t("events.close")));
      return;
    }
    this.shown = openDetail(this.detail, event, { close: () => this.unselect(), step: (by) => this.step(by) });
    if (focus) this.detail.focus({ preventScroll: true });
  }

  unselect() {
    /** @type {HTMLElement | null} */
    const row = this.list.querySelector(`[data-number="${this.number}"]`);
    this.number = null;
    this.remember();
    this.mark();
    this.showDetail(null);
    row?.focus();
  }

  /**
   * Goes to the next newer (-1) or older (1) event of the list.
   * @param {number} by
   */
  step(by) {
    const place = this.events.findIndex((one) => one.number === this.number);
    const next = place < 0 ? null : this.events[place + by];
    if (next) this.select(next.number, false);
    if (by > 0 && place >= this.events.length - 5) this.more();
  }

  // ------------------------------------------------------------------------------------------------------ timeline

  async drawTimeline() {
    const turn = this.turn, bins = innerWidth < 600 ? 48 : 96, query = this.query({ bins });
    if (!this.filters.from && !this.filters.to) { // parts that begin at the same times in each request: bars do not move
      const span = PERIODS[this.filters.period] ?? PERIODS.day, to = Math.ceil(now_s() / (span / bins)) * (span / bins);
      query.set("from", String(to - span));
      query.set("to", String(to));
    }
    try {
      const found = await get(`/api/v1/events/timeline?${query}`);
      if (turn === this.turn && !this.closed) drawTimeline(this.timeline, found, (from, to, source) => this.setSpan(from, to, source));
    } catch { /* the next turn tries again */ }
  }
}
