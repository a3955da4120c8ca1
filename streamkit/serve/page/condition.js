// How well a camera is: the word and color of its tile, and what is worse than what.

import { ago } from "./dom.js";
import { has, t } from "./strings.js";

/** @typedef {import("./types").SourceView} SourceView */
/** @typedef {"failed" | "reconnecting" | "still" | "connecting" | "paused" | "ended" | "running"} Condition */

/** All conditions, the worst first. @type {Condition[]} */
export const CONDITIONS = ["failed", "reconnecting", "still", "connecting", "paused", "ended", "running"];

/**
 * The condition of a source: its state, or `still` if it runs and sends no frames.
 * @param {SourceView} source
 * @returns {Condition}
 */
export const condition = (source) => /** @type {Condition} */ (source.state === "running" && source.quiet_s ? "still" : source.state);

/** @param {SourceView} source */
export const rank = (source) => CONDITIONS.indexOf(condition(source));

/**
 * Whether a person has to look after it.
 * @param {SourceView} source
 */
export const isProblem = (source) => rank(source) < CONDITIONS.indexOf("connecting");

/**
 * A word of the API, such as a state, for people.
 * @param {string} group
 * @param {string} word
 */
export const named = (group, word) => (has(`${group}.${word}`) ? t(`${group}.${word}`) : word.replaceAll("_", " "));

/**
 * The word for a state, with its cause.
 * @param {SourceView} source
 */
export const stateWord = (source) => named("state", source.state) + (source.cause ? `: ${named("cause", source.cause)}` : "");

/**
 * What is wrong, in words.
 * @param {SourceView} source
 */
export function problemText(source) {
  if (condition(source) === "still") return t("tile.still", { time: ago(source.quiet_s ?? 0) });
  return source.message || stateWord(source);
}
