// One event: its sentence, its clip from the second of the event, its picture, and its data without JSON.

import { make, number } from "../dom.js";
import { address } from "../router.js";
import { signedIn } from "../session.js";
import { t } from "../strings.js";
import { moment } from "./shared.js";

const HIDDEN = new Set(["text", "clip", "clip_s", "snapshot", "path", "label"]); // shown elsewhere
const DEEP = 3;

/**
 * @param {HTMLElement} box
 * @param {import("./events.js").EventView} event
 * @param {{ close: () => void, step: (by: number) => void }} on
 */
export function openDetail(box, event, on) {
  const base = `/api/v1/events/${event.number}`;
  const media = make("div", { class: "media" });
  const links = make("p", { class: "links" }, make("a", { href: address("events", { number: event.number }) }, t("events.link")));
  /** @type {HTMLVideoElement | null} */
  let video = null;
  if (!signedIn) {
    if (event.image || event.clip) media.append(make("p", { class: "empty" }, t("events.signin.long")));
  } else {
    if (event.clip) {
      video = clip(event, `${base}/clip.mp4`, media);
      links.append(make("a", { href: `${base}/clip.mp4`, download: "" }, t("events.download.clip")));
    }
    if (event.image) {
      /** @type {HTMLImageElement} */
      const image = make("img", { src: `${base}/image.jpg`, alt: t("events.picture", { text: event.text }), onerror: async () => {
        image.replaceWith(make("p", { class: "message" }, await refusal(`${base}/image.jpg`) ?? t("events.noimage")));
      } });
      media.append(image);
      links.append(make("a", { href: `${base}/image.jpg`, download: `${event.source}-${event.number}.jpg` }, t("events.download.picture")));
    }
    if (event.snapshot) links.append(make("a", { href: `${base}/snapshot.jpg`, target: "_blank" }, t("events.open.snapshot")));
  }
  const button = (/** @type {string} */ key, /** @type {() => void} */ work) => make("button", { type: "button", onclick: work }, t(key));
  box.replaceChildren(
    make("div", { class: "detail-buttons" }, button("events.newer", () => on.step(-1)), button("events.older", () => on.step(1)), button("events.close", on.close)),
    make("h3", {}, event.text), media, links, facts(event));
  return {
    close() {
      video?.pause();
      video?.removeAttribute("src");
      video?.load();
    },
  };
}

/**
 * Why the server does not send a file; null if it does.
 * @param {string} path
 * @returns {Promise<string | null>}
 */
export async function refusal(path) {
  try {
    const answer = await fetch(path, { headers: { range: "bytes=0-0" } });
    return answer.ok ? null : (await answer.json()).error;
  } catch {
    return null;
  }
}

/**
 * @param {import("./events.js").EventView} event
 * @param {string} source
 * @param {HTMLElement} media
 */
export function clip(event, source, media) {
  const failed = make("p", { class: "message", role: "alert", hidden: true }, t("events.clip.failed"));
  const video = make("video", { controls: true, playsinline: true, preload: "auto", "aria-label": t("events.clip", { source: event.source }) });
  video.muted = true; // a browser starts a video by itself only without sound
  video.addEventListener("loadedmetadata", () => {
    video.currentTime = event.clip_s ?? 0;
    video.play().catch(() => null); // the user starts it
  }, { once: true });
  video.addEventListener("error", async () => {
    if (!video.getAttribute("src")) return;
    failed.hidden = false;
    video.hidden = true;
    const reason = await refusal(source);
    if (reason) failed.textContent = reason;
  });
  video.src = source;
  media.append(video, failed);
  return video;
}

/** @param {import("./events.js").EventView} event */
function facts(event) {
  const rows = [
    [t("events.field.time"), `${moment(event.time_s)} (${new Date(event.time_s * 1000).toISOString()})`],
    [t("events.field.source"), event.source], [t("events.field.stage"), event.stage], [t("events.field.kind"), event.kind.replaceAll("_", " ")],
    ...(event.label === null ? [] : [[t("events.field.label"), event.label]]),
    ...(event.track_id === null ? [] : [[t("events.field.track"), String(event.track_id)]]),
    [t("events.field.frame"), number(event.frame)], [t("events.field.position"), t("events.seconds", { n: event.pts_s.toFixed(2) })],
    ...[...flat(event.data)].filter(([name]) => !HIDDEN.has(name)),
  ];
  return make("dl", { class: "facts" }, ...rows.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

/**
 * The values of an event's data by name, as words.
 * @param {any} data
 * @param {string} before
 * @param {number} depth
 * @returns {Generator<[string, string]>}
 */
function* flat(data, before = "", depth = 0) {
  for (const [key, value] of Object.entries(data ?? {})) {
    const name = `${before}${key.replaceAll("_", " ")}`;
    if (!before && HIDDEN.has(key)) continue;
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      if (depth < DEEP) yield* flat(value, `${name} `, depth + 1);
    } else {
      yield [name, words(value)];
    }
  }
}

/**
 * @param {any} value
 * @param {number} depth
 * @returns {string}
 */
function words(value, depth = 0) {
  if (value === null || value === undefined) return t("events.unknown");
  if (typeof value === "boolean") return t(value ? "events.yes" : "events.no");
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Math.round(value * 1000) / 1000);
  if (Array.isArray(value)) return depth < DEEP ? value.map((one) => words(one, depth + 1)).join(", ") : "…";
  if (typeof value === "object") return depth < DEEP ? Object.entries(value).map(([key, one]) => `${key} ${words(one, depth + 1)}`).join(", ") : "…";
  return String(value);
}
