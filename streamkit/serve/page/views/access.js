// People, tokens, signed-in browsers and the audit log, for admins; for a person, the own password and browsers.

import { call, get } from "../api.js";
import { now_s } from "../clock.js";
import { ago, make, say, text } from "../dom.js";
import { modal } from "../modal.js";
import { askToken, may, onSession, signedIn, who } from "../session.js";
import { t } from "../strings.js";
import { ROLES, groupsField, groupsText, showOnce, trouble } from "./access_parts.js";
import { auditLog } from "./audit.js";
import { listing, when } from "./listing.js";
import { ownPassword, people } from "./people.js";

const EVERY_MS = 5000;

function tokens() {
  const { element, body, row } = listing("tokens", ["name", "role", "groups", "origin", "sessions", "actions"], t("tokens.title"));
  const error = trouble();
  const name = /** @type {HTMLInputElement} */ (make("input", { id: "token-name", required: true, maxlength: 64, autocomplete: "off" }));
  const role = /** @type {HTMLSelectElement} */ (make("select", { id: "token-role", "aria-describedby": "token-role-help", onchange: () => explain() },
    ...ROLES.map((one) => make("option", { value: one }, t(`role.${one}`)))));
  const help = make("p", { class: "help", id: "token-role-help" });
  const cameras = groupsField("token-groups");
  const explain = () => {
    text(help, t(`role.${role.value}May`));
    cameras.enable(role.value !== "admin");
  };
  explain();

  async function show() {
    const found = await get("/api/v1/tokens");
    const asText = JSON.stringify(found);
    if (asText === body.dataset.shown) return; // so that a button keeps the focus
    body.dataset.shown = asText;
    body.replaceChildren(...found.map((/** @type {any} */ one) => row({
      name: one.name, role: t(`role.${one.role}`), groups: groupsText(one.groups), sessions: String(one.sessions),
      origin: one.origin === "page" ? t("tokens.page", { by: one.created_by, time: new Date(one.created_s * 1000).toLocaleDateString() }) : t(`tokens.${one.origin}`),
      actions: one.origin === "page"
        ? make("button", { type: "button", "aria-label": t("tokens.revokeOf", { name: one.name }), onclick: () => revoke(one.name) }, t("tokens.revoke"))
        : make("span", { class: "help" }, t("tokens.fixed")),
    })));
  }

  /** @param {string} owner */
  function revoke(owner) {
    modal({ title: t("tokens.revokeSure", { name: owner }), body: [make("p", {}, t("tokens.revokeWhat"))], danger: true,
      save: t("tokens.revoke"), cancel: t("access.cancel"), async submit() {
        await call("DELETE", `/api/v1/tokens/${encodeURIComponent(owner)}`);
        say(t("tokens.revoked", { name: owner }));
        await show();
      } });
  }

  const create = (/** @type {Event} */ event) => {
    event.preventDefault();
    return error.during(async () => {
      const rights = { role: role.value, groups: cameras.value() };
      const created = await call("POST", "/api/v1/tokens", { name: name.value.trim(), ...rights });
      showOnce(t("tokens.title"), t("tokens.once", created), t("tokens.label"), created.token);
      name.value = "";
      cameras.clear();
      await show();
    });
  };
  const section = make("section", { "aria-labelledby": "tokens-title" },
    make("div", { class: "title" }, make("h2", { id: "tokens-title" }, t("tokens.title"))),
    make("p", { class: "help" }, t("tokens.about")), element,
    make("form", { class: "filters", onsubmit: create, "aria-label": t("tokens.create") },
      make("div", {}, make("label", { for: name.id }, t("tokens.name")), name),
      make("div", {}, make("label", { for: role.id }, t("tokens.role")), role), cameras.element,
      make("button", { type: "submit", class: "primary" }, t("tokens.create")), help, cameras.help), error.element);
  return { section, show };
}

function sessions() {
  const { element, body, row } = listing("sessions", ["name", "role", "address", "agent", "begun", "used", "actions"], t("sessions.title"));
  const error = trouble();
  async function show() {
    const found = await get("/api/v1/sessions");
    const asText = JSON.stringify(found.map((/** @type {any} */ one) => one.id));
    if (asText !== body.dataset.shown) {
      body.dataset.shown = asText;
      body.replaceChildren(...found.map((/** @type {any} */ one) => row({
        name: one.name, role: t(`role.${one.role}`), address: one.address, agent: one.agent, begun: when(one.begun_s), used: "",
        actions: one.own ? make("span", { class: "help" }, t("sessions.own"))
          : make("button", { type: "button", "aria-label": t("sessions.endOf", { name: one.name, address: one.address }), onclick: () => end(one) }, t("sessions.end")),
      })));
    }
    found.forEach((/** @type {any} */ one, /** @type {number} */ place) => {
      const cell = body.children[place]?.querySelector(".used");
      if (cell) text(cell, ago(Math.max(0, now_s() - one.used_s)));
    });
  }
  /** @param {any} one */
  const end = (one) => error.during(async () => {
    await call("DELETE", `/api/v1/sessions/${one.id}`);
    say(t("sessions.ended", { name: one.name }));
    await show();
  });
  const section = make("section", { "aria-labelledby": "sessions-title" },
    make("div", { class: "title" }, make("h2", { id: "sessions-title" }, t("sessions.title"))), element, error.element);
  return { section, show };
}

/**
 * @param {HTMLElement} root
 * @returns {import("./index.js").Opened}
 */
export function open(root) {
  /** @type {(() => Promise<void>)[]} */
  let parts = [];
  const refresh = () => { if (!document.hidden) for (const show of parts) show().catch(() => null); };
  function fill() {
    parts = [];
    if (!may("admin") && !who.hasPassword) {
      root.replaceChildren(make("div", { class: "empty" },
        make("p", {}, signedIn ? t("access.needsYours", { name: who.name, role: t(`role.${who.role}`) }) : t("access.needs")),
        make("p", {}, make("button", { type: "button", class: "primary", onclick: askToken }, t("access.signIn")))));
      return;
    }
    const own = who.hasPassword ? [ownPassword()] : [];
    const shown = may("admin") ? [...own, people(), tokens(), sessions(), auditLog()] : [...own, sessions()];
    parts = shown.map(({ show }) => show);
    root.replaceChildren(make("div", { class: "access" }, ...shown.map(({ section }) => section)));
    refresh();
  }
  const forget = onSession(fill);
  fill();
  const timer = setInterval(refresh, EVERY_MS);
  return { close() {
    clearInterval(timer);
    forget();
  } };
}
