// The dialog in which layouts and tours are made and changed.

import { make, text } from "../dom.js";
import { actionIcon } from "../icons.js";
import { modal } from "../modal.js";
import { allSources, nameOf } from "../names.js";
import { cameraOptions, cameraSearch } from "../source_filter.js";
import { t } from "../strings.js";

/** @typedef {import("../types").Layouts} Layouts */
/** @typedef {import("../types").Layout} Layout */
/** @typedef {import("../types").Tour} Tour */
/** @typedef {(saved: Layouts) => Promise<void>} Save */

const SIZES = [1, 4, 9, 16, 25];
const USUAL_S = 15;

/**
 * Opens the list of what is saved.
 * @param {Layouts} saved
 * @param {string[]} shown the ids of the cameras that the view shows now
 * @param {Save} save
 */
export function editLayouts(saved, shown, save) {
  const list = make("div", { class: "layout-list" });
  const error = (/** @type {unknown} */ trouble) => text(box.error, trouble instanceof Error ? trouble.message : String(trouble));
  const again = (/** @type {Layouts} */ now) => {
    box.close();
    editLayouts(now, shown, save);
  };
  const keep = async (/** @type {Layouts} */ now) => {
    await save(now);
    again(now);
  };
  const entry = (/** @type {string} */ name, /** @type {string} */ summary, /** @type {() => void} */ change, /** @type {() => Layouts} */ without) => make("li", {},
    make("span", { class: "entry-name" }, make("strong", {}, name), " ", make("span", { class: "faint" }, summary)),
    make("button", { type: "button", class: "small", "aria-label": t("layouts.changeOf", { name }), onclick: change }, t("layouts.change")),
    make("button", { type: "button", class: "small", "aria-label": t("layouts.removeOf", { name }), onclick: () => keep(without()).catch(error) }, t("layouts.remove")));
  const withLayout = (/** @type {Layout | null} */ before) => {
    box.close();
    editLayout(before, shown, (layout) => save(replacedLayout(saved, before, layout)));
  };
  const withTour = (/** @type {Tour | null} */ before) => {
    box.close();
    editTour(before, saved.layouts, (tour) => save({ ...saved, tours: replaced(saved.tours, before, tour) }));
  };
  list.append(
    make("h3", {}, t("layouts.saved")),
    make("ul", {}, ...saved.layouts.map((layout) => entry(layout.name, t("layouts.summary", { n: layout.sources.length, size: layout.size }), () => withLayout(layout),
      () => withoutLayout(saved, layout.name)))),
    make("button", { type: "button", class: "small", onclick: () => withLayout(null) }, t("layouts.new")),
    make("h3", {}, t("layouts.tours")),
    make("ul", {}, ...saved.tours.map((tour) => entry(tour.name, t("layouts.tourSummary", { n: tour.stops.length }), () => withTour(tour),
      () => ({ ...saved, tours: saved.tours.filter(({ name }) => name !== tour.name) })))),
    make("button", { type: "button", class: "small", disabled: saved.layouts.length === 0, onclick: () => withTour(null) }, t("layouts.newTour")));
  const box = modal({ id: "layouts", title: t("layouts.title"), cancel: t("layouts.close"), body: [make("p", { class: "help" }, t("layouts.about")), list] });
}

/**
 * @template {{ name: string }} T
 * @param {T[]} entries
 * @param {T | null} before
 * @param {T} after
 * @returns {T[]}
 */
const replaced = (entries, before, after) => (before ? entries.map((entry) => (entry === before ? after : entry)) : [...entries, after]);

/**
 * @param {Layouts} saved
 * @param {Layout | null} before
 * @param {Layout} layout
 * @returns {Layouts}
 */
function replacedLayout(saved, before, layout) {
  const renamed = (/** @type {string} */ name) => (before && name === before.name ? layout.name : name);
  return { layouts: replaced(saved.layouts, before, layout),
    tours: saved.tours.map((tour) => ({ ...tour, stops: tour.stops.map((stop) => ({ ...stop, layout: renamed(stop.layout) })) })) };
}

/**
 * @param {Layouts} saved
 * @param {string} name
 * @returns {Layouts}
 */
function withoutLayout(saved, name) {
  const tours = saved.tours.map((tour) => ({ ...tour, stops: tour.stops.filter(({ layout }) => layout !== name) }));
  return { layouts: saved.layouts.filter((layout) => layout.name !== name), tours: tours.filter(({ stops }) => stops.length > 0) };
}

/**
 * A list whose entries can be moved and taken out with the keyboard, too.
 * @template T
 * @param {T[]} entries changed in place
 * @param {(entry: T) => string} nameOfEntry
 * @param {(entry: T) => HTMLElement[]} [further] controls of an entry
 */
function ordered(entries, nameOfEntry, further = () => []) {
  const list = make("ol", { class: "ordered" });
  const move = (/** @type {number} */ place, /** @type {number} */ by) => {
    const [entry] = entries.splice(place, 1);
    entries.splice(place + by, 0, entry);
    show();
    /** @type {HTMLElement | null} */ (list.children[place + by]?.querySelector(by < 0 ? ".up" : ".down"))?.focus();
  };
  const button = (/** @type {string} */ key, /** @type {string} */ drawing, /** @type {string} */ name, /** @type {boolean} */ disabled, /** @type {() => void} */ onclick) => make("button", {
    type: "button", class: `icon-button ${drawing}`, "aria-label": t(key, { name }), title: t(key, { name }), disabled, onclick }, actionIcon(drawing));
  function show() {
    list.replaceChildren(...entries.map((entry, place) => make("li", {}, make("span", { class: "entry-name" }, nameOfEntry(entry)), ...further(entry),
      button("layouts.up", "up", nameOfEntry(entry), place === 0, () => move(place, -1)),
      button("layouts.down", "down", nameOfEntry(entry), place === entries.length - 1, () => move(place, 1)),
      button("layouts.drop", "close", nameOfEntry(entry), false, () => {
        entries.splice(place, 1);
        show();
      }))));
  }
  show();
  return { list, show };
}

/** @param {string} name */
const nameField = (name) => {
  const input = make("input", { id: "layout-name", required: true, maxlength: 80, autocomplete: "off" });
  input.value = name;
  return input;
};

/**
 * @param {Layout | null} before
 * @param {string[]} shown
 * @param {(layout: Layout) => Promise<void>} save
 */
function editLayout(before, shown, save) {
  const name = nameField(before?.name ?? ""), sources = [...(before?.sources ?? [])];
  const size = make("select", { id: "layout-size" }, ...SIZES.map((n) => make("option", { value: n }, String(n))));
  size.value = String(before?.size ?? 4);
  const { list, show } = ordered(sources, nameOf);
  const add = (/** @type {string[]} */ ids) => {
    sources.push(...ids.filter((id) => !sources.includes(id)));
    show();
  };
  const choice = make("select", { id: "layout-camera", onchange: () => {
    if (choice.value) add([choice.value]);
    choice.value = "";
  } });
  const offer = (/** @type {string} */ words) => choice.replaceChildren(make("option", { value: "" }, t("layouts.add")),
    ...cameraOptions(allSources().map(({ id }) => id), allSources(), words));
  const search = cameraSearch(offer);
  search.offer(allSources().length);
  offer("");
  modal({
    id: "layout", title: before ? before.name : t("layouts.new"), save: t("layouts.save"), cancel: t("page.cancel"),
    body: [make("label", { for: name.id }, t("layouts.name")), name, make("label", { for: size.id }, t("layouts.size")), size,
      make("label", { for: choice.id }, t("layouts.cameras")), list, make("div", { class: "add-camera" }, search.input, choice,
        make("button", { type: "button", class: "small", onclick: () => add(shown) }, t("layouts.addShown")))],
    async submit() {
      if (!sources.length) throw new Error(t("layouts.noCamera"));
      await save({ name: name.value.trim(), sources, size: /** @type {Layout["size"]} */ (Number(size.value)) });
    },
  });
  name.focus();
}

/**
 * @param {Tour | null} before
 * @param {Layout[]} layouts
 * @param {(tour: Tour) => Promise<void>} save
 */
function editTour(before, layouts, save) {
  const name = nameField(before?.name ?? ""), stops = (before?.stops ?? []).map((stop) => ({ ...stop }));
  const { list, show } = ordered(stops, (stop) => stop.layout, (stop) => {
    const seconds = make("input", { type: "number", min: 2, max: 3600, step: 1, required: true, "aria-label": t("layouts.seconds", { name: stop.layout }),
      oninput: () => { stop.seconds = seconds.valueAsNumber; } });
    seconds.value = String(stop.seconds);
    return [make("span", { class: "unit" }, seconds, make("span", {}, "s"))];
  });
  const choice = make("select", { id: "tour-layout", onchange: () => {
    if (choice.value) stops.push({ layout: choice.value, seconds: USUAL_S });
    choice.value = "";
    show();
  } }, make("option", { value: "" }, t("layouts.addStop")), ...layouts.map((layout) => make("option", { value: layout.name }, layout.name)));
  modal({
    id: "tour", title: before ? before.name : t("layouts.newTour"), save: t("layouts.save"), cancel: t("page.cancel"),
    body: [make("label", { for: name.id }, t("layouts.name")), name, make("label", { for: choice.id }, t("layouts.stops")), list, choice],
    async submit() {
      if (!stops.length) throw new Error(t("layouts.noStop"));
      await save({ name: name.value.trim(), stops });
    },
  });
  name.focus();
}
