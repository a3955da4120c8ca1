// Sign-in. A link with #token=... signs in automatically; the token is removed from the address bar.

import { call, get } from "./api.js";
import { $, dialog, say } from "./dom.js";

export let signedIn = false;

const changed = new Set();
export const onSession = (callback) => changed.add(callback);

function set(value) {
  signedIn = value;
  $("sign-in").hidden = value;
  $("sign-out").hidden = !value;
  for (const callback of changed) callback(value);
}

const login = dialog("login", async (form) => {
  await call("POST", "/api/v1/session", { token: form.elements.token.value });
  form.reset();
  set(true);
  say("You are signed in.");
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
  say("You are signed out.");
});
