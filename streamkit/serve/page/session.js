// Sign-in and roles. A link with #token=... signs in automatically; the token is removed from the address bar.
// With &view=..., the link opens that view.
//
// An element with data-needs="operator" or "admin" is hidden from a role that may not use it; see roles.css.

import { call, get } from "./api.js";
import { $, dialog, field, make, say, text } from "./dom.js";
import { forgetDrafts, unsaved } from "./drafts.js";
import { modal } from "./modal.js";
import { t } from "./strings.js";

const ROLES = ["viewer", "operator", "admin"];
const EVERY_MS = 5000; // how often the page asks whether its session goes on

export let signedIn = false;
/** Who is signed in: the owner of the token, and its role. @type {{ name: string, role: string }} */
export let who = { name: "", role: "" };

/**
 * Whether the user's role includes another one.
 * @param {string} role
 */
export const may = (role) => ROLES.indexOf(who.role) >= ROLES.indexOf(role);

/** @type {Set<(signedIn: boolean) => void>} */
const changed = new Set();

/**
 * Calls `callback` when the user signs in or out, or has another role; returns a function that ends this.
 * @param {(signedIn: boolean) => void} callback
 */
export function onSession(callback) {
  changed.add(callback);
  return () => changed.delete(callback);
}

// Asks the server who is signed in.
async function look(force = false) {
  const { signed_in: value, name, role } = await get("/api/v1/session");
  if (signedIn && !value) say(t("session.over"));
  if (force || value !== signedIn || name !== who.name || role !== who.role) set(value, name, role);
}

setInterval(() => { if (signedIn && !document.hidden) look().catch(() => null); }, EVERY_MS);

/**
 * @param {boolean} value
 * @param {string} [name] of the token's owner
 * @param {string} [role]
 */
function set(value, name = "", role = "") {
  signedIn = value;
  who = { name, role };
  document.body.dataset.role = role;
  text($("who"), value ? t(name === role ? "role.same" : "role.who", { name, role: t(`role.${role}`) }) : "");
  $("sign-in").hidden = value;
  $("sign-out").hidden = !value;
  for (const callback of changed) callback(value);
}

const login = dialog("login", async (form) => {
  await call("POST", "/api/v1/session", { token: field(form, "token").value });
  form.reset();
  await look();
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
  const link = new URLSearchParams(location.hash.slice(1)), token = link.get("token"), view = link.get("view");
  if (token) {
    history.replaceState(null, "", location.pathname + (view ? `#/${view}` : ""));
    if (view) dispatchEvent(new Event("hashchange"));
    try {
      await call("POST", "/api/v1/session", { token });
    } catch { /* the page shows the sign-in form */ }
  }
  await look(true);
}

$("sign-in").addEventListener("click", askToken);
async function signOut() {
  forgetDrafts();
  await call("DELETE", "/api/v1/session").catch(() => null);
  set(false);
  say(t("session.out"));
}

$("sign-out").addEventListener("click", () => {
  if (!unsaved().length) return void signOut();
  const views = unsaved().map((view) => t(`${view}.title`)).join(", ");
  modal({ title: t("session.unsavedTitle"), body: [make("p", {}, t("session.unsaved", { views }))], danger: true,
    save: t("session.discard"), cancel: t("page.cancel"), submit: signOut });
});
