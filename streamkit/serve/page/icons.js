// Small drawings for the navigation, by the name of a view.

import { svg } from "./dom.js";

/** @type {Record<string, string>} */
const PATHS = {
  home: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  live: "M3 6h13v12H3zM16 10l5-3v10l-5-3",
  events: "M5 6h14M5 12h14M5 18h9",
  review: "M4 12l5 5L20 6M4 5h8M4 20h16",
  charts: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  counts: "M4 20V12h3v8M10.500 20V5h3v15M17 20v-6h3v6M3 20h18",
  zones: "M5 8l8-4 6 7-4 8-9-2z",
  alarms: "M6 17V11a6 6 0 0 1 12 0v6l1.5 2h-15zM10 21h4",
  pipeline: "M3 9h5v6H3zM16 4h5v6h-5zM16 14h5v6h-5zM8 12h4M12 7v10M12 7h4M12 17h4",
  logs: "M5 4h14v16H5zM8 8h8M8 12h8M8 16h5",
  config: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4.500v5M10 14.500v5",
  sources: "M4 8h3l2-3h6l2 3h3v11H4zM12 16a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  access: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21a8 8 0 0 1 16 0",
  more: "M5 12h.01M12 12h.01M19 12h.01",
};

/** @param {string} name */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", width: 22, height: 22, "aria-hidden": "true" },
    svg("path", { d: PATHS[name] ?? "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16z" }));
}
