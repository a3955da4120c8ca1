// The latest events, newest first. Elements are reused and moved, so that the list does not flicker.

import { $, make, text } from "./dom.js";
import { address } from "./router.js";
import { onSession, signedIn } from "./session.js";

const items = new Map();
let shown = [];

function item(event) {
  const shot = make("div", { class: "shot" });
  if (event.image && signedIn) {
    const image = make("img", { loading: "lazy", alt: event.text, src: `/api/v1/events/${event.number}/image.jpg`,
      onerror: () => image.replaceWith("image discarded") });
    shot.append(make("a", { href: `/api/v1/events/${event.number}/image.jpg`, target: "_blank" }, image));
  } else {
    shot.append(event.image ? "sign in" : "no image");
  }
  const when = new Date(event.time_s * 1000);
  return make("li", { class: "event" }, shot,
    make("div", { class: "what" },
      make("strong", {}, make("a", { href: address("events", { number: event.number }) }, event.text)),
      make("small", {}, make("time", { datetime: when.toISOString() }, when.toLocaleTimeString()), ` · ${event.stage}`)));
}

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
  text($("quiet"), emits.length ? "No events yet." : "No stage of this pipeline emits events.");
}

onSession(() => {
  items.forEach((element) => element.remove());
  items.clear();
  showEvents(shown, ["?"]);
});
