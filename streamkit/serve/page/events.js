// The latest events, newest first. Elements are reused and moved, so that the list does not flicker.

import { $, make, text } from "./dom.js";
import { address } from "./router.js";
import { onSession, signedIn } from "./session.js";
import { t } from "./strings.js";

/** @typedef {import("./types").EventView} EventView */

/** @type {Map<number, HTMLElement>} */
const items = new Map();
/** @type {EventView[]} */
let shown = [];

/** @param {EventView} event */
function item(event) {
  const shot = make("div", { class: "shot" });
  const about = t("events.title", { kind: event.kind, source: event.source });
  if (event.image && signedIn) {
    /** @type {HTMLImageElement} */
    const image = make("img", { loading: "lazy", alt: event.text, src: `/api/v1/events/${event.number}/image.jpg`,
      onerror: () => image.replaceWith(t("events.discarded")) });
    shot.append(make("a", { href: `/api/v1/events/${event.number}/image.jpg`, target: "_blank" }, image));
  } else {
    shot.append(t(event.image ? "events.signIn" : "events.noImage"));
  }
  const when = new Date(event.time_s * 1000);
  return make("li", { class: "event" }, shot,
    make("div", { class: "what" },
      make("strong", {}, make("a", { href: address("events", { number: event.number }) }, event.text)),
      make("small", {}, make("time", { datetime: when.toISOString() }, when.toLocaleTimeString()), ` · ${event.stage}`)));
}

/**
 * @param {EventView[]} events
 * @param {string[]} emits the stages that emit events
 */
export function showEvents(events, emits) {
  shown = events;
  const list = $("list");
  const numbers = new Set(events.map((event) => event.number));
  for (const [number, element] of items) {
    if (!numbers.has(number)) {
      element.remove();
      items.delete(number);
    }
  }
  events.forEach((event, place) => {
    let element = items.get(event.number);
    if (!element) items.set(event.number, element = item(event));
    if (list.children[place] !== element) list.insertBefore(element, list.children[place] ?? null);
  });
  $("quiet").hidden = events.length > 0;
  text($("quiet"), t(emits.length ? "events.none" : "events.never"));
}

onSession(() => {
  items.forEach((element) => element.remove());
  items.clear();
  showEvents(shown, ["?"]);
});
