// Completions at a place of a YAML text, from the JSON Schema of a pipeline: the keys of the mapping there, and the
// values that a key takes.

/** @typedef {{ text: string, label: string, help: string }} Completion */
/** @typedef {{ key: string, rest: string, given: Record<string, string>, list: boolean }} Open an open bracket */
/** @typedef {ReturnType<typeof place>} Place */

/** @param {string} line */
const indentOf = (line) => line.length - line.replace(/^ */, "").length;

/**
 * Where the cursor stands: the keys that lead there, and the word before it.
 * @param {string} text
 * @param {number} at the cursor
 * @returns {{ path: string[], word: string, value: boolean, given: Record<string, string>, flow: boolean }} `value` says
 *   whether a value stands there; `path` then ends with its key. `given` are the keys that are there already.
 */
export function place(text, at) {
  const begin = text.lastIndexOf("\n", at - 1) + 1, line = text.slice(begin, at);
  const indent = indentOf(line);
  const path = above(text, begin, indent);
  const body = line.slice(indent).replace(/^(- )+/, "");
  const parts = brackets(body);
  const last = /** @type {Open} */ (parts.pop());
  for (const one of parts) if (one.key) path.push(one.key);
  const found = last.rest.match(/^([\w.-]+):\s+(.*)$/s);
  const given = parts.length ? last.given : siblings(text, begin, indent);
  if (found) return { path: [...path, found[1]], word: found[2].replace(/^["']/, ""), value: true, given, flow: parts.length > 0 };
  if (last.list) return { path, word: last.rest, value: true, given, flow: true };
  return { path, word: last.rest, value: false, given, flow: parts.length > 0 };
}

/**
 * The keys of the lines above that are indented less.
 * @param {string} text
 * @param {number} begin
 * @param {number} indent
 */
function above(text, begin, indent) {
  const path = [];
  let left = indent;
  for (const line of text.slice(0, begin).split("\n").reverse()) {
    const found = line.match(/^( *)(?:- )?("?)([\w ./-]+)\2:(?:\s|$)/);
    if (found && found[1].length < left) {
      path.unshift(found[3]);
      left = found[1].length;
    }
    if (left === 0) break;
  }
  return path;
}

/**
 * The keys and values of the mapping in whose block a line stands.
 * @param {string} text
 * @param {number} begin
 * @param {number} indent
 */
function siblings(text, begin, indent) {
  const lines = text.split("\n"), here = text.slice(0, begin).split("\n").length - 1;
  /** @type {Record<string, string>} */
  const given = {};
  const look = (/** @type {number} */ step) => {
    for (let n = here + step; n >= 0 && n < lines.length; n += step) {
      const found = lines[n].match(/^( *)([\w.-]+):\s*(.*)$/);
      const deep = lines[n].trim() && !lines[n].trim().startsWith("#") ? indentOf(lines[n]) : Infinity;
      if (deep < indent) return;
      if (found && deep === indent) given[found[2]] = found[3].replace(/\s+#.*$/, "");
    }
  };
  look(-1);
  look(1);
  return given;
}

/**
 * What stands within brackets of a line: for each open bracket the key before it, the keys within, and the rest.
 * @param {string} body
 */
function brackets(body) {
  /** @type {Open[]} */
  const open = [{ key: "", rest: "", given: {}, list: false }];
  let quote = "";
  const take = (/** @type {Open} */ one) => {
    const found = one.rest.match(/^\s*([\w.-]+):\s*(.*)$/s);
    if (found) one.given[found[1]] = found[2].trim();
  };
  for (const sign of body) {
    const one = open[open.length - 1];
    if (quote) {
      if (sign === quote) quote = "";
      one.rest += sign;
    } else if (sign === '"' || sign === "'") {
      quote = sign;
      one.rest += sign;
    } else if (sign === "{" || sign === "[") {
      one.key = one.rest.match(/([\w.-]+):\s*$/)?.[1] ?? "";
      open.push({ key: "", rest: "", given: {}, list: sign === "[" });
    } else if ((sign === "}" || sign === "]") && open.length > 1) {
      open.pop();
    } else if (sign === "," && open.length > 1) {
      take(one);
      one.rest = "";
    } else {
      one.rest += sign;
    }
  }
  const last = open[open.length - 1];
  last.rest = last.rest.trimStart();
  return open;
}

/**
 * The schemas that hold at a path.
 * @param {any} schema the whole schema
 * @param {string[]} path
 * @param {(path: string[]) => Record<string, string>} given the keys and values of the mapping at a path
 * @returns {any[]}
 */
export function schemasAt(schema, path, given) {
  let found = [schema];
  for (let n = 0; n <= path.length; n += 1) {
    found = found.flatMap((one) => open(schema, one, given(path.slice(0, n))));
    if (n === path.length) break;
    const next = [];
    for (const one of found) {
      const name = path[n];
      if (one.properties && name in one.properties) next.push(one.properties[name]);
      else if (one.additionalProperties && typeof one.additionalProperties === "object") next.push(one.additionalProperties);
      if (one.items) next.push(...(one.items.properties ? [] : open(schema, one.items, {}).flatMap((item) => item.properties?.[name] ?? [])));
    }
    found = next;
  }
  return found;
}

/**
 * A schema and all that it refers to; of a condition the branch that holds for the keys that are given.
 * @param {any} whole
 * @param {any} schema
 * @param {Record<string, string>} given
 * @param {number} depth
 * @returns {any[]}
 */
function open(whole, schema, given, depth = 0) {
  if (!schema || typeof schema !== "object" || depth > 12) return [];
  const parts = [schema];
  if (schema.$ref) parts.push(...open(whole, follow(whole, schema.$ref), given, depth + 1));
  for (const one of [...(schema.anyOf ?? []), ...(schema.allOf ?? []), ...(schema.oneOf ?? [])]) parts.push(...open(whole, one, given, depth + 1));
  if (schema.if) parts.push(...open(whole, holds(schema.if, given) ? schema.then : schema.else, given, depth + 1));
  return parts;
}

/**
 * @param {any} whole
 * @param {string} ref
 */
function follow(whole, ref) {
  return ref.slice(2).split("/").reduce((found, step) => found?.[step.replaceAll("~1", "/").replaceAll("~0", "~")], whole);
}

/**
 * @param {any} condition
 * @param {Record<string, string>} given
 * @returns {boolean}
 */
function holds(condition, given) {
  const required = (condition.required ?? []).every((/** @type {string} */ name) => name in given);
  return required && Object.entries(condition.properties ?? {}).every(([name, one]) => one.const === undefined || given[name] === one.const);
}

/**
 * The completions at a place.
 * @param {any} schema
 * @param {string} text
 * @param {number} at the cursor
 * @returns {{ word: string, found: Completion[] }} `word` is what stands before the cursor and is replaced
 */
export function complete(schema, text, at) {
  const here = place(text, at);
  const given = (/** @type {string[]} */ path) => keysAt(text, at, path, here);
  /** @type {Map<string, Completion>} */
  const found = new Map();
  const add = (/** @type {string} */ word, /** @type {string} */ label, /** @type {string} */ help) => word.startsWith(here.word) && !found.has(word) && found.set(word, { text: label, label: word, help });
  for (const one of schemasAt(schema, here.path, given)) {
    if (here.value) {
      const about = one.description ?? "";
      for (const value of one.enum ?? (one.const !== undefined ? [one.const] : [])) add(String(value), String(value), about);
      for (const value of one.items?.enum ?? []) add(String(value), String(value), about);
      if (one.type === "boolean") for (const value of ["true", "false"]) add(value, value, about);
    } else {
      for (const [name, inner] of Object.entries(one.properties ?? {})) {
        if (name in here.given) continue;
        const needed = one.required?.includes(name);
        const help = [needed ? "*" : "", described(schema, inner), inner.default !== undefined ? `(${inner.default})` : ""].filter(Boolean).join(" ");
        add(name, `${name}: `, help);
      }
    }
  }
  return { word: here.word, found: [...found.values()] };
}

/**
 * @param {any} whole
 * @param {any} schema
 * @returns {string}
 */
function described(whole, schema) {
  return schema.description ?? open(whole, schema, {}).find((one) => one.description)?.description ?? "";
}

/**
 * The keys and values of a mapping on the way to the cursor: in the lines of its block, or in its brackets.
 * @param {string} text
 * @param {number} at
 * @param {string[]} path
 * @param {Place} here
 * @returns {Record<string, string>}
 */
function keysAt(text, at, path, here) {
  if (path.length === here.path.length - (here.value ? 1 : 0)) return here.given;
  const lines = text.slice(0, at).split("\n");
  let left = Infinity, n = lines.length - 1;
  const above = [];
  for (; n >= 0 && left > 0; n -= 1) {
    const found = lines[n].match(/^( *)(?:- )?("?)([\w ./-]+)\2:(?:\s|$)/);
    if (found && found[1].length < left) {
      above.unshift({ n, key: found[3], indent: found[1].length });
      left = found[1].length;
    }
  }
  const child = above[path.length];
  if (!child) return {};
  return siblings(text, lines.slice(0, child.n).join("\n").length + (child.n ? 1 : 0), child.indent);
}
