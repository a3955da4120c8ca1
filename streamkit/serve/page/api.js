// Calls the API. Every failure is an Error with a message for the user; `away` means that the server did not respond.

const PATIENCE_MS = 8000;

export class Trouble extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
    this.away = status === 0;
  }
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {number} [patience_ms] how long to wait for the response
 * @returns {Promise<any>}
 */
export async function call(method, path, body, patience_ms = PATIENCE_MS) {
  const request = { method, headers: {}, cache: "no-store", signal: AbortSignal.timeout(patience_ms) };
  if (body !== undefined) {
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Trouble("The server does not respond.", 0);
  }
  if (!answer.ok) {
    let text = `The server responds with status ${answer.status}.`;
    try {
      text = (await answer.json()).error ?? text;
    } catch { /* no JSON body: show the status */ }
    throw new Trouble(text, answer.status);
  }
  if (answer.status === 204) return null;
  const type = answer.headers.get("content-type") ?? "";
  return type.startsWith("image/") ? answer.blob() : answer.json();
}

export const get = (path) => call("GET", path);

export const path = (id, rest = "") => `/api/v1/sources/${id.split("/").map(encodeURIComponent).join("/")}${rest}`;
