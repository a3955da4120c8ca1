// Sign-in. A link with #token=... signs in automatically; the token is removed from the address bar.

import { call, get } from "./api.js";
import { $, dialog, field, say } from "./dom.js";
import { t } from "./strings.js";

export let signedIn = false;

/** @type {Set<(signedIn: boolean) => void>} */
const changed = new Set();

/**
 * Calls `callback` when the user signs in or out; returns a function that ends this.
 * @param {(signedIn: boolean) => void} callback
 */
export function onSession(callback) {
  changed.add(callback);
  return () => changed.delete(callback);
}

/** @param {boolean} value */
function set(value) {
  signedIn = value;
  $("sign-in").hidden = value;
  $("sign-out").hidden = !value;
  for (const callback of changed) callback(value);
}

const login = dialog("login", async (form) => {
  await call("POST", "/api/v1/session", { token: field(form, "token").value });
  form.reset();
  set(true);
  say(t("session.in"));
});

export function askToken() {
  if (!login.box.open) login.open();
}

// A request returned 401: the token has changed or is missing.
export function lost() {
  if (signedIn) set(false);
}

export async function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname);
    try {
      await call("POST", "/api/v1/session", { token: given });
    } catch { /* the page shows the sign-in form */ }
  }
  set((await get("/api/v1/session")).signed_in);
}

$("sign-in").addEventListener("click", askToken);
$("sign-out").addEventListener("click", async () => {
  await call("DELETE", "/api/v1/session").catch(() => null);
  set(false);
  say(t("session.out"));
});
