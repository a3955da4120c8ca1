// The form of a source: address, options as fields, and a test of the connection.

import { call, get, path } from "./api.js";
import { make, say, text } from "./dom.js";
import { modal } from "./modal.js";
import { optionField } from "./option_field.js";
import { askToken, may, signedIn } from "./session.js";
import { t } from "./strings.js";

const TEST_MS = 25000; // a test takes up to 15 s

/** @type {Promise<Record<string, import("./option_field.js").SourceOption[]>> | null} */
let kinds = null;

/**
 * Opens the form: to add a source, or to change one. What the user does not change is not sent.
 * @param {any} source as in GET /api/v1/sources; null to add one
 */
export async function openSource(source) {
  if (!signedIn || !may("operator")) {
    askToken();
    return;
  }
  kinds ??= get("/api/v1/source-options");
  let known;
  try {
    known = await kinds;
  } catch (trouble) {
    kinds = null;
    say(trouble instanceof Error ? trouble.message : String(trouble));
    return;
  }
  show(source, known);
}

/**
 * An address with the login of the fields, in which signs such as # are escaped; an empty field keeps the address's own.
 * @param {string} address
 * @param {string} user
 * @param {string} password
 */
function withLogin(address, user, password) {
  const parts = /^([a-z][a-z0-9+.-]*:\/\/)(?:([^/?#]*)@)?(.*)$/is.exec(address);
  if (!parts || !(user || password)) return address;
  const [, scheme, login = "", rest] = parts;
  const end = login.includes(":") ? login.indexOf(":") : login.length;
  const name = user ? encodeURIComponent(user) : login.slice(0, end);
  const secret = password ? `:${encodeURIComponent(password)}` : login.slice(end);
  return `${scheme}${name}${secret}@${rest}`;
}

/**
 * @param {any} source
 * @param {Record<string, import("./option_field.js").SourceOption[]>} known options by kind
 */
function show(source, known) {
  const address = source ? source.address : "";
  const id = /** @type {HTMLInputElement} */ (make("input", { id: "camera-id", name: "id", required: true, maxlength: 64, autocomplete: "off",
    spellcheck: "false", pattern: "[A-Za-z0-9_][A-Za-z0-9_.\\-]*", "aria-describedby": "camera-id-help", readonly: Boolean(source) }));
  const uri = /** @type {HTMLInputElement} */ (make("input", { id: "camera-uri", name: "uri", required: true, maxlength: 2048, autocomplete: "off",
    spellcheck: "false", inputmode: "url", "aria-describedby": "camera-uri-help" }));
  const user = /** @type {HTMLInputElement} */ (make("input", { id: "camera-user", maxlength: 200, autocomplete: "off", spellcheck: "false",
    "aria-describedby": "camera-login-help" }));
  const password = /** @type {HTMLInputElement} */ (make("input", { id: "camera-password", type: "password", maxlength: 200,
    autocomplete: "new-password", "aria-describedby": "camera-login-help" }));
  const full = () => withLogin(uri.value.trim(), user.value, password.value);
  id.value = source ? source.id : "";
  uri.value = address;
  const common = make("div", { class: "options" }), more = make("div", { class: "options" });
  /** @type {import("./option_field.js").OptionField[]} */
  let fields = [];
  let kind = "", before = "";

  const kindOf = () => (uri.value.startsWith("test:") ? "test_pattern" : source && uri.value === address && source.kind in known ? source.kind : "source");
  const others = () => Object.fromEntries(Object.entries(source ? source.options : {}).filter(([name]) => !fields.some((one) => one.name === name)));
  const options = () => ({ ...(kind === (source ? source.kind : kind) ? others() : {}),
    ...Object.fromEntries(fields.map((one) => [one.name, one.read()]).filter(([, value]) => value !== undefined)) });

  function build() {
    if (kindOf() === kind) return;
    const first = kind === "";
    kind = kindOf();
    const offered = known[kind] ?? [];
    fields = offered.map((one) => optionField(one, source ? source.options[one.name] : undefined, "camera-option"));
    const isCommon = (/** @type {any} */ _, /** @type {number} */ place) => offered[place].common;
    common.replaceChildren(...fields.filter(isCommon).map((one) => one.element));
    more.replaceChildren(...fields.filter((one, place) => !isCommon(one, place)).map((one) => one.element));
    if (first) before = JSON.stringify(options());
  }

  // What the user has changed: all of a new source.
  function changes() {
    /** @type {{ uri?: string, options?: Record<string, any> }} */
    const found = {};
    const given = options();
    if (!source || full() !== address) found.uri = full();
    if (JSON.stringify(given) !== before || (!source && Object.keys(given).length)) found.options = given;
    return found;
  }

  uri.addEventListener("input", build);
  build();
  const test = tester(() => ({ id: source ? source.id : "", ...changes() }), uri, [user, password]);
  modal({
    id: "camera", wide: true, cancel: t("sources.cancel"),
    title: source ? t("source.changeTitle", { id: source.id }) : t("source.add"),
    save: t(source ? "source.saveChange" : "source.save"),
    body: [
      make("label", { for: id.id }, t("source.name")), id, make("p", { class: "help", id: "camera-id-help" }, t("source.nameHelp")),
      make("label", { for: uri.id }, t("source.address")), uri,
      make("p", { class: "help", id: "camera-uri-help" }, t(address.includes("***") ? "source.addressKept" : "source.addressHelp")),
      make("div", { class: "login" },
        make("p", {}, make("label", { for: user.id }, t("source.user")), user),
        make("p", {}, make("label", { for: password.id }, t("source.password")), password)),
      make("p", { class: "help", id: "camera-login-help" }, t("source.loginHelp")),
      test, common, make("details", {}, make("summary", {}, t("source.more")), more),
    ],
    async submit() {
      const body = changes();
      const made = source ? await call("PUT", path(source.id), body) : await call("POST", "/api/v1/sources", { id: id.value.trim(), ...body });
      say(t(source ? "source.changed" : "source.added", { id: made.id }));
    },
  });
  (source ? uri : id).focus();
}

/**
 * The button that tests the connection, and its result.
 * @param {() => any} body of the request
 * @param {HTMLInputElement} uri
 * @param {HTMLInputElement[]} login the fields of the user and the password
 */
function tester(body, uri, login) {
  const result = make("div", { class: "tested", role: "status" });
  for (const input of [uri, ...login]) input.addEventListener("input", () => result.replaceChildren());
  const button = /** @type {HTMLButtonElement} */ (make("button", { type: "button", onclick: run }, t("source.test")));
  async function run() {
    button.disabled = true;
    text(button, t("source.testing"));
    result.replaceChildren();
    try {
      result.append(...outcome(await call("POST", "/api/v1/sources/test", body(), TEST_MS), uri.value));
    } catch (trouble) {
      result.append(make("p", { class: "error" }, trouble instanceof Error ? trouble.message : String(trouble)));
    } finally {
      button.disabled = false;
      text(button, t("source.test"));
    }
  }
  return make("div", { class: "test" }, button, result);
}

/**
 * @param {any} found
 * @param {string} address
 * @returns {HTMLElement[]}
 */
function outcome(found, address) {
  if (!found.ok) {
    const cause = found.cause ? found.cause.replaceAll("_", " ") : "";
    return [make("p", { class: "error" }, t(cause ? "source.failsCause" : "source.fails", { cause, error: found.error }))];
  }
  const facts = [found.codec, found.width ? t("source.size", { width: found.width, height: found.height }) : "",
    found.fps ? t("source.rate", { n: Math.round(found.fps * 100) / 100 }) : "", t("source.took", { n: found.took_s.toFixed(1) })];
  const parts = [make("p", { class: "works" }, t("source.works")), make("p", { class: "help" }, facts.filter(Boolean).join(" · "))];
  if (!found.image) return [...parts, make("p", { class: "help" }, t("source.noImage"))];
  const bytes = Uint8Array.from(atob(found.image), (one) => one.charCodeAt(0));
  const url = URL.createObjectURL(new Blob([bytes], { type: "image/jpeg" }));
  return [make("img", { src: url, alt: t("source.image", { address: address.replace(/\/\/[^@/]*@/, "//") }), onload: () => URL.revokeObjectURL(url) }),
    make("div", {}, ...parts)];
}
