// Shows the view that the address names, as #/events?source=gate, and passes the state of the pipeline to it.

import { setTitle } from "./alerts.js";
import { $, make } from "./dom.js";
import { icon } from "./icons.js";
import { t } from "./strings.js";
import { stylesheet } from "./stylesheet.js";

/** @typedef {import("./views/index.js").View} View */

/** @type {View[]} */
let views = [];
/** @type {import("./views/index.js").Opened | null} */
let opened = null;
/** @type {import("./views/index.js").State | null} */
let state = null;
let turn = 0;

/**
 * Adds views to the page, in the order of the navigation.
 * @param {View[]} added
 */
export function addViews(added) {
  views = [...views, ...added];
}

/**
 * The address of a view, for links.
 * @param {string} name
 * @param {Record<string, string | number>} [params]
 */
export function address(name, params = {}) {
  const query = new URLSearchParams(/** @type {Record<string, string>} */ (params)).toString();
  return `#/${name}${query ? `?${query}` : ""}`;
}

async function show() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const view = views.find(({ name }) => name === path) ?? views[0];
  const thisTurn = turn += 1;
  opened?.close?.();
  opened = null;
  for (const link of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#views a"))) {
    if (link.dataset.view === view.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  setTitle(view === views[0] ? "streamkit" : `${view.title} · streamkit`);
  unfold(false);
  const root = $("view");
  root.replaceChildren();
  root.dataset.view = view.name;
  scrollTo(0, 0);
  $("home").hidden = view.load !== null;
  root.hidden = view.load === null;
  if (view.load === null) return;
  let module;
  try {
    [module] = await Promise.all([view.load(), stylesheet(view.name)]);
  } catch (trouble) { // the connection broke; the browser retries only after a reload
    console.warn(trouble);
    if (thisTurn === turn) {
      root.replaceChildren(make("p", { class: "empty" }, t("page.notLoaded"), " ",
        make("button", { type: "button", onclick: () => location.reload() }, t("page.reload"))));
    }
    return;
  }
  if (thisTurn !== turn) return; // the user went on meanwhile
  opened = module.open(root, new URLSearchParams(query));
  if (state) opened.update?.(state);
}

/**
 * On a phone: shows the views for which the bar has no room.
 * @param {boolean} open
 */
function unfold(open) {
  $("nav").classList.toggle("open", open);
  $("more").setAttribute("aria-expanded", String(open));
}

/** @param {import("./views/index.js").State} now */
export function update(now) {
  state = now;
  opened?.update?.(now);
}

// How often the view that is open needs the state, in milliseconds.
export const everyMs = () => opened?.everyMs ?? 1000;

export function begin() {
  $("views").append(...views.map((view) => make("li", {}, make("a", { href: address(view.name), "data-view": view.name },
    icon(view.name), make("span", {}, view.title)))));
  const more = $("more");
  more.append(icon("more"), make("span", {}, t("page.more")));
  more.hidden = views.length <= 5;
  $("nav").classList.toggle("many", views.length > 5);
  more.addEventListener("click", () => unfold(more.getAttribute("aria-expanded") === "false"));
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && more.getAttribute("aria-expanded") === "true") {
      unfold(false);
      more.focus();
    }
  });
  addEventListener("hashchange", show);
  return show();
}
