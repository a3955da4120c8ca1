// All sources, kept up to date with what has changed of them: the server sends only that.

import { get } from "./api.js";

/** @typedef {import("./types").SourceView} SourceView */

/** @type {Map<string, SourceView>} */
const views = new Map();
/** @type {string[]} */
let ids = [];
let version = "";
let loaded_ms = 0;

/**
 * Asks for changes; returns all sources in their order. A source that has not changed is the same object as before.
 * @returns {Promise<SourceView[]>}
 */
export async function loadSources() {
  /** @type {import("./types").ChangedSources} */
  const changes = await get(`/api/v1/source-changes?since=${encodeURIComponent(version)}`);
  const now_ms = performance.now();
  for (const view of views.values()) view.since_s += (now_ms - loaded_ms) / 1000;
  loaded_ms = now_ms;
  for (const view of changes.sources) views.set(view.id, view);
  if (changes.ids) {
    ids = changes.ids;
    const present = new Set(ids);
    for (const id of views.keys()) if (!present.has(id)) views.delete(id);
  }
  version = changes.version;
  return ids.flatMap((id) => views.get(id) ?? []);
}
