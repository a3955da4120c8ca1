// Shows /openapi.json, the description of the API.

import { get } from "./api.js";
import { $, make } from "./dom.js";
import { fill, t } from "./strings.js";

/** @typedef {{ $ref?: string, anyOf?: Schema[], type?: string, items?: Schema, properties?: Record<string, Schema>, description?: string }} Schema */

/**
 * @param {Schema} [schema]
 * @returns {string}
 */
function word(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop() ?? "";
  if (schema.anyOf) return schema.anyOf.map(word).join(` ${t("docs.or")} `);
  if (schema.type === "array") return t("docs.list", { of: word(schema.items) });
  return schema.type ?? "";
}

/** @param {...string} cells */
const row = (...cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell)));

/**
 * @param {string} verb
 * @param {string} path
 * @param {any} call
 */
function operation(verb, path, call) {
  const rows = (call.parameters ?? []).map((/** @type {any} */ one) => row(one.name, `${one.in}, ${word(one.schema)}`));
  const body = call.requestBody?.content?.["application/json"]?.schema;
  if (body) rows.push(row(t("docs.body"), word(body)));
  for (const [status, answer] of /** @type {[string, any][]} */ (Object.entries(call.responses))) {
    const content = Object.entries(answer.content ?? {}).map(([type, one]) => word(/** @type {any} */ (one).schema) || type).join(", ");
    rows.push(row(status, `${answer.description ?? ""}${content ? ` (${content})` : ""}`));
  }
  return make("article", {},
    make("h3", {}, make("code", { class: "verb" }, verb.toUpperCase()), make("code", {}, path)),
    make("p", {}, call.description ?? call.summary, call.security ? ` ${t("docs.locked", { role: call.security[0].HTTPBearer[0] })}` : ""),
    make("table", {}, make("tbody", {}, ...rows)));
}

/**
 * @param {string} name
 * @param {Schema} schema
 */
function shape(name, schema) {
  const rows = Object.entries(schema.properties ?? {}).map(([key, one]) => row(key, word(one)));
  return make("article", {}, make("h3", {}, make("code", {}, name)), make("p", {}, schema.description ?? ""),
    make("table", {}, make("tbody", {}, ...rows)));
}

fill(document);
const api = await get("/openapi.json");
$("calls").append(
  ...Object.entries(api.paths).flatMap(([path, calls]) => Object.entries(calls).map(([verb, call]) => operation(verb, path, call))),
  make("h2", {}, t("docs.objects")),
  ...Object.entries(api.components?.schemas ?? {}).map(([name, schema]) => shape(name, schema)));
