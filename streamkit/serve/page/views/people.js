// The people who sign in with a name: for admins; and the own password of a person.

import { call, get } from "../api.js";
import { now_s } from "../clock.js";
import { ago, make, say, text } from "../dom.js";
import { modal } from "../modal.js";
import { who } from "../session.js";
import { t } from "../strings.js";
import { ROLES, groupsField, groupsText, showOnce, trouble } from "./access_parts.js";
import { listing } from "./listing.js";

/** @typedef {import("../types").PersonView} PersonView */

/**
 * The fields of a person's rights.
 * @param {string} id
 * @param {string} [role]
 * @param {string[] | null} [groups]
 */
function rights(id, role = "viewer", groups = null) {
  const choice = /** @type {HTMLSelectElement} */ (make("select", { id: `${id}-role`, "aria-describedby": `${id}-role-help`, onchange: () => explain() },
    ...ROLES.map((value) => make("option", { value, selected: value === role }, t(`role.${value}`)))));
  const help = make("p", { class: "help", id: `${id}-role-help` });
  const cameras = groupsField(`${id}-groups`, groups);
  const explain = () => {
    text(help, t(`role.${choice.value}May`));
    cameras.enable(choice.value !== "admin");
  };
  explain();
  const element = make("div", {}, make("label", { for: choice.id }, t("people.role")), choice);
  return { element, help, cameras, value: () => ({ role: choice.value, groups: cameras.value() }) };
}

/** @param {PersonView} person */
const address = (person) => `/api/v1/people/${encodeURIComponent(person.name)}`;

/** @param {PersonView} person */
function seen(person) {
  if (person.seen_s !== null) return ago(Math.max(0, now_s() - person.seen_s));
  return t(person.one_time ? "people.waits" : "people.never");
}

export function people() {
  const { element, body, row } = listing("people", ["name", "role", "groups", "origin", "seen", "actions"], t("people.title"));
  const error = trouble();
  const none = make("p", { class: "empty", hidden: true }, t("people.none"));
  const name = /** @type {HTMLInputElement} */ (make("input", { id: "person-name", required: true, maxlength: 64, autocomplete: "off", autocapitalize: "none" }));
  const newRights = rights("person");

  async function show() {
    /** @type {PersonView[]} */
    const persons = await get("/api/v1/people");
    none.hidden = persons.length > 0;
    element.hidden = persons.length === 0;
    const asText = JSON.stringify(persons.map((person) => ({ ...person, seen_s: 0, sessions: 0 })));
    if (asText !== body.dataset.shown) { // so that a button keeps the focus
      body.dataset.shown = asText;
      body.replaceChildren(...persons.map((person) => row({
        name: person.name, role: t(`role.${person.role}`), groups: groupsText(person.groups),
        origin: t(`people.${person.origin}`, { by: person.created_by, time: new Date(person.created_s * 1000).toLocaleDateString() }),
        actions: actions(person),
      })));
    }
    persons.forEach((person, place) => {
      const cell = body.children[place]?.querySelector(".seen");
      if (cell) text(cell, seen(person));
    });
  }

  /** @param {PersonView} person */
  function actions(person) {
    const { name: owner } = person;
    const button = (/** @type {string} */ what, /** @type {() => void} */ onclick) =>
      make("button", { type: "button", "aria-label": t(`people.${what}Of`, { name: owner }), onclick }, t(`people.${what}`));
    const remove = button("remove", () => ask("remove", owner, async () => {
      await call("DELETE", address(person));
      say(t("people.removed", { name: owner }));
    }));
    if (person.origin !== "page") return make("div", { class: "actions" }, remove);
    const reset = button("reset", () => ask("reset", owner, async () => {
      const { password } = await call("POST", `${address(person)}/reset`);
      once(owner, password);
    }));
    return make("div", { class: "actions" }, button("change", () => change(person)), reset, remove);
  }

  /**
   * @param {string} what
   * @param {string} owner
   * @param {() => Promise<void>} work
   */
  function ask(what, owner, work) {
    modal({ title: t(`people.${what}Sure`, { name: owner }), body: [make("p", {}, t(`people.${what}What`, { name: owner }))], danger: true,
      save: t(`people.${what}`), cancel: t("access.cancel"), async submit() {
        await work();
        await show();
      } });
  }

  /** @param {PersonView} person */
  function change(person) {
    const changed = rights("change", person.role, person.groups);
    modal({ title: t("people.changeOf", { name: person.name }), body: [changed.element, changed.help, changed.cameras.element, changed.cameras.help],
      save: t("people.save"), cancel: t("access.cancel"), async submit() {
        await call("PUT", address(person), changed.value());
        say(t("people.changed", { name: person.name }));
        await show();
      } });
  }

  /**
   * @param {string} owner
   * @param {string} password
   */
  const once = (owner, password) => showOnce(t("people.title"), t("people.once", { name: owner }), t("people.label"), password);

  const create = (/** @type {Event} */ event) => {
    event.preventDefault();
    return error.during(async () => {
      const created = await call("POST", "/api/v1/people", { name: name.value.trim(), ...newRights.value() });
      once(created.name, created.password);
      name.value = "";
      newRights.cameras.clear();
      await show();
    });
  };
  const section = make("section", { "aria-labelledby": "people-title" },
    make("div", { class: "title" }, make("h2", { id: "people-title" }, t("people.title"))),
    make("p", { class: "help" }, t("people.about")), none, element,
    make("form", { class: "filters", onsubmit: create, "aria-label": t("people.create") },
      make("div", {}, make("label", { for: name.id }, t("people.name")), name), newRights.element, newRights.cameras.element,
      make("button", { type: "submit", class: "primary" }, t("people.create")), newRights.help, newRights.cameras.help), error.element);
  return { section, show };
}

// The form in which a person changes the own password.
export function ownPassword() {
  const error = trouble();
  const input = (/** @type {string} */ id, /** @type {string} */ autocomplete) => /** @type {HTMLInputElement} */ (
    make("input", { id, type: "password", required: true, maxlength: 256, autocomplete }));
  const present = input("own-password", "current-password");
  const next = input("own-new-password", "new-password");
  next.minLength = 12;
  const change = (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    return error.during(async () => {
      await call("PUT", "/api/v1/session/password", { password: present.value, new_password: next.value });
      /** @type {HTMLFormElement} */ (event.target).reset();
      say(t("own.changed"));
    });
  };
  const about = t("own.about", { name: who.name, role: t(`role.${who.role}`), groups: groupsText(who.groups) });
  const section = make("section", { "aria-labelledby": "own-title" },
    make("div", { class: "title" }, make("h2", { id: "own-title" }, t("own.title"))), make("p", { class: "help" }, about),
    make("form", { class: "filters", onsubmit: change, "aria-label": t("own.change") },
      make("input", { type: "text", autocomplete: "username", value: who.name, hidden: true }),
      make("div", {}, make("label", { for: present.id }, t("own.password")), present),
      make("div", {}, make("label", { for: next.id }, t("own.newPassword")), next),
      make("button", { type: "submit", class: "primary" }, t("own.change"))), error.element);
  return { section, show: async () => {} };
}
