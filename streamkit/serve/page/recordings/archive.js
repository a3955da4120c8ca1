// The recordings that the server keeps: what there is, and its videos and images by time.

import { Trouble, get, respond } from "../api.js";
import { t } from "../strings.js";

/** @typedef {{ day: string, recorded_s: number }} RecordedDay */
/** @typedef {{ source: string, first_s: number, last_s: number, bytes: number, days: RecordedDay[] }} Recording */
/** @typedef {{ id: number | string, from_s: number, to_s: number, width: number, height: number, codec: string, bytes: number }} Segment */
/** @typedef {{ from_s: number, to_s: number, cause: string }} Gap */
/** @typedef {{ segments: Segment[], gaps: Gap[], motion: number[], events: number[] }} RecordedTimeline */
/** @typedef {{ data: ArrayBuffer, mime: string, start_s: number, end_s: number }} VideoRange */

const BASE = "/api/v1/recordings";

/**
 * @param {string} route
 * @param {Record<string, string | number | boolean>} params
 */
function url(route, params) {
  const query = new URLSearchParams(Object.entries(params).map(([name, param]) => [name, String(param)]));
  return `${BASE}${route}?${query}`;
}

/**
 * Seconds since 1970 as they are sent: a double has no more digits.
 * @param {number} time_s
 */
const seconds = (time_s) => Number(time_s.toFixed(4));

/** @returns {Promise<Recording[]>} */
export const listRecordings = () => get(BASE);

/**
 * Whether a camera was recorded around the clock at about a time.
 * @param {string} source
 * @param {number} time_s
 */
export async function isRecorded(source, time_s) {
  const { segments } = await recordedTimeline(source, time_s - 1, time_s + 1, 1);
  return segments.length > 0;
}

/**
 * @param {string} source
 * @param {number} from_s
 * @param {number} to_s
 * @param {number} bins
 * @param {AbortSignal} [signal]
 * @returns {Promise<RecordedTimeline>}
 */
export async function recordedTimeline(source, from_s, to_s, bins, signal) {
  const params = { source, from_s: seconds(from_s), to_s: seconds(to_s), bins };
  return (await respond(url("/timeline", params), { signal })).json();
}

/**
 * The video of a time, from the keyframe at or before `from_s`.
 * @param {string} source
 * @param {number} from_s
 * @param {number} to_s
 * @param {AbortSignal} signal
 * @returns {Promise<VideoRange>}
 */
export async function recordedVideo(source, from_s, to_s, signal) {
  const params = { source, from_s: seconds(from_s), to_s: seconds(to_s) };
  const answer = await respond(url("/video", params), { signal });
  const start_s = Number(answer.headers.get("x-start-s"));
  const end_s = Number(answer.headers.get("x-end-s"));
  if (!(end_s > start_s)) throw new Trouble(t("recordings.noTimes"), answer.status);
  const mime = (answer.headers.get("content-type") ?? "").replace(/codecs=([^"]+)$/, 'codecs="$1"');
  return { data: await answer.arrayBuffer(), mime, start_s, end_s };
}

/**
 * The keyframe at or before a time.
 * @param {string} source
 * @param {number} time_s
 * @param {number} width in pixels
 * @param {AbortSignal} signal
 * @returns {Promise<{ image: Blob, time_s: number }>}
 */
export async function keyframe(source, time_s, width, signal) {
  const answer = await respond(url("/image", { source, time_s: seconds(time_s), width }), { signal, cache: "default" });
  return { image: await answer.blob(), time_s: Number(answer.headers.get("x-time-s") ?? time_s) };
}

/**
 * @param {string} source
 * @param {number} from_s
 * @param {number} to_s
 * @param {boolean} exact encoded again, to the frame; else copied from keyframe to keyframe
 */
export const exportAddress = (source, from_s, to_s, exact) =>
  url("/export", { source, from_s: seconds(from_s), to_s: seconds(to_s), exact });
