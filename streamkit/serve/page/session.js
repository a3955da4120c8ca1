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
/**
 * Who is signed in: the person or the owner of the token, the role, the camera groups (null: all), and whether there is
 * a password to change.
 * @type {{ name: string, role: string, groups: string[] | null, hasPassword: boolean }}
 */
export let who = { name: "", role: "", groups: null, hasPassword: false };
/** How people sign in: with a name, and at which provider. */
const ways = { people: false, provider: "" };

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
  const { signed_in: value, name, role, groups, has_password: hasPassword, people, provider } = await get("/api/v1/session");
  if (signedIn && !value) say(t("session.over"));
  Object.assign(ways, { people, provider });
  const person = { name, role, groups, hasPassword };
  if (force || value !== signedIn || JSON.stringify(person) !== JSON.stringify(who)) set(value, person);
}

setInterval(() => { if (signedIn && !document.hidden) look().catch(() => null); }, EVERY_MS);

/**
 * @param {boolean} value
 * @param {typeof who} [person]
 */
function set(value, person = { name: "", role: "", groups: null, hasPassword: false }) {
  signedIn = value;
  who = person;
  const { name, role } = person;
  document.body.dataset.role = role;
  document.body.classList.toggle("has-password", person.hasPassword);
  text($("who"), value ? t(name === role ? "role.same" : "role.who", { name, role: t(`role.${role}`) }) : "");
  $("sign-in").hidden = value;
  $("sign-out").hidden = !value;
  for (const callback of changed) callback(value);
}

const login = dialog("login", async (form) => {
  const value = (/** @type {string} */ name) => field(form, name).value;
  const person = { name: value("name").trim(), password: value("password"), new_password: value("new_password") };
  try {
    await call("POST", "/api/v1/session", value("token") ? { token: value("token") } : person);
  } catch (/** @type {any} */ trouble) {
    if (trouble.status !== 409) throw trouble;
    askNewPassword(true);
    throw new Error(t("session.newAbout"));
  }
  form.reset();
  await look();
  say(t("session.in"));
});

/** @param {boolean} asks whether the form asks for the password that replaces a one-time password */
function askNewPassword(asks) {
  const input = $("login-new-password");
  $("login-new").hidden = !asks;
  input.toggleAttribute("required", asks);
  if (asks) input.focus();
}

export function askToken() {
  if (login.box.open) return;
  const { people, provider } = ways;
  text($("login-provider"), provider ? t("session.at", { provider }) : "");
  $("login-provider").hidden = !provider;
  $("login-person").hidden = !people;
  askNewPassword(false);
  $("login-by-token").toggleAttribute("open", !people && !provider);
  login.open();
  if (people) $("login-name").focus();
}

// A sign-in at the provider that failed leads back with #sign-in=CODE.
/** @param {string} code */
function showFailure(code) {
  const known = ["denied", "expired", "rights", "away", "failed"];
  askToken();
  text($("login-error"), t(`session.failed.${known.includes(code) ? code : "failed"}`));
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
  const failure = link.get("sign-in");
  if (failure !== null) history.replaceState(null, "", location.pathname);
  await look(true).catch((trouble) => { if (failure === null) throw trouble; });
  if (failure !== null && !signedIn) showFailure(failure);
}

$("sign-in").addEventListener("click", askToken);
$("login-provider").addEventListener("click", () => location.assign("/api/v1/session/oidc"));
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
