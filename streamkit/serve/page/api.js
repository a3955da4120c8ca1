// Calls the API. Every failure is an Error with a message for the user; `away` means that the server did not respond.

import { t } from "./strings.js";

const PATIENCE_MS = 8000;

export class Trouble extends Error {
  /**
   * @param {string} message
   * @param {number} status 0 if the server did not respond
   */
  constructor(message, status) {
    super(message);
    this.status = status;
    this.away = status === 0;
  }
}

/**
 * Sends a request, and returns its answer if it succeeded.
 * @param {string} path
 * @param {RequestInit} request
 * @returns {Promise<Response>}
 */
export async function respond(path, request) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...request });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause; // the caller has stopped it
    throw new Trouble(t("api.away"), 0);
  }
  if (answer.ok) return answer;
  let text = t("api.status", { status: answer.status });
  try {
    text = (await answer.json()).error ?? text;
  } catch { /* no JSON body: show the status */ }
  throw new Trouble(text, answer.status);
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {number} [patience_ms]
 * @returns {Promise<any>}
 */
export async function call(method, path, body, patience_ms = PATIENCE_MS) {
  /** @type {Record<string, string>} */
  const headers = {};
  /** @type {RequestInit} */
  const request = { method, headers, signal: /** @type {any} */ (AbortSignal).timeout(patience_ms) };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const answer = await respond(path, request);
  if (answer.status === 204) return null;
  const type = answer.headers.get("content-type") ?? "";
  return type.startsWith("image/") ? answer.blob() : answer.json();
}

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export const get = (path) => call("GET", path);

/**
 * The path of a source in the API.
 * @param {string} id
 * @param {string} [rest]
 */
export const path = (id, rest = "") => `/api/v1/sources/${id.split("/").map(encodeURIComponent).join("/")}${rest}`;
