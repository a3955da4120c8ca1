// What people call the cameras: their names, which the page shows in place of ids.

/** @typedef {import("./types").SourceView} SourceView */

/** @type {SourceView[]} */
let all = [];
/** @type {Map<string, string>} */
let names = new Map();

/** @param {SourceView[]} sources all of them */
export function setNames(sources) {
  all = sources;
  names = new Map(sources.map(({ id, name }) => [id, name]));
}

/** All sources, as the page knows them. */
export const allSources = () => all;

/**
 * The name of a camera; its id if it has none or is not there any more.
 * @param {string} id
 */
export const nameOf = (id) => names.get(id) || id;

/**
 * A text of the server, in which cameras have their names in place of their ids.
 * @param {string} text with ids in quotation marks
 * @param {string[]} ids that it may name
 */
export const withNames = (text, ids) => ids.reduce((words, id) => words.replaceAll(`"${id}"`, () => `"${nameOf(id)}"`), text);
