// Part of the view `alarms`: alerts to this browser, silence, and sending again what no one has reviewed.

import { call, get } from "../api.js";
import { make, text, why } from "../dom.js";
import { may, signedIn } from "../session.js";
import { t } from "../strings.js";
import { moment } from "./shared.js";

/** @typedef {import("../types").PushView} PushView */

const SILENCE_MIN = [15, 60, 480], ESCALATE_MIN = [2, 5, 15, 60], WORKER = "/service-worker.js";

/** @param {string} key in URL-safe base64 without padding */
function bytesOf(key) {
  const whole = atob(key.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(whole, (letter) => letter.charCodeAt(0));
}

/** @returns {Promise<PushSubscription | null>} */
async function current() {
  const worker = await navigator.serviceWorker.getRegistration(WORKER);
  return (await worker?.pushManager.getSubscription()) ?? null;
}

/** The section, which fills itself when a person is signed in. */
export function pushSection() {
  const error = make("p", { class: "error", role: "alert" }), words = make("p"), silenced = make("p", { class: "faint" });
  const button = make("button", { type: "button", class: "small", onclick: () => toggle() });
  const silence = make("select", { id: "push-silence", onchange: (event) => quiet(event.target.value) }), escalate = make("select", { id: "push-escalate", onchange: (event) => repeat(event.target.value) });
  const choices = make("div", { class: "push-choices", "data-needs": "operator" },
    make("div", {}, make("label", { for: silence.id }, t("push.silence")), silence), make("div", {}, make("label", { for: escalate.id }, t("push.escalate")), escalate));
  const section = make("section", { "aria-labelledby": "push-title", hidden: true }, make("h3", { id: "push-title" }, t("push.title")), error, words, button, silenced, choices);
  let on = false, publicKey = "";

  /** @param {string} path @param {unknown} body */
  async function send(path, body) {
    try {
      text(error, "");
      show(await call("POST", path, body));
    } catch (trouble) {
      text(error, why(trouble));
    }
  }

  async function toggle() {
    text(error, "");
    button.disabled = true;
    try {
      if (on) {
        const subscription = await current();
        if (subscription) await call("POST", "/api/v1/push/unsubscribe", { endpoint: subscription.endpoint });
        await subscription?.unsubscribe();
      } else {
        if (await Notification.requestPermission() !== "granted") throw new Error(t("push.denied"));
        const worker = await navigator.serviceWorker.register(WORKER);
        const subscription = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytesOf(publicKey) });
        await call("POST", "/api/v1/push/subscriptions", subscription.toJSON());
      }
      await load();
    } catch (trouble) {
      text(error, why(trouble));
    } finally {
      button.disabled = false;
    }
  }

  /** @param {string} minutes */
  const quiet = (minutes) => minutes === "" ? null : send("/api/v1/push/silence", { minutes: Number(minutes) });
  /** @param {string} minutes */
  const repeat = (minutes) => send("/api/v1/push/escalation", { minutes: minutes ? Number(minutes) : null });

  /** @param {PushView} view */
  function show(view) {
    publicKey = view.public_key;
    const able = "serviceWorker" in navigator && "PushManager" in window;
    text(words, view.problem || (able ? t(on ? "push.on" : "push.off") : t("push.unable")));
    text(button, t(on ? "push.stop" : "push.start"));
    button.hidden = !able || Boolean(view.problem);
    const until = view.silenced[""];
    text(silenced, until ? t("push.silenced", { time: moment(until) }) : "");
    const end = until ? [["0", t("push.silence.end")]] : [];
    options(silence, [["", t(until ? "push.silence.more" : "push.silence.no")], ...end, ...SILENCE_MIN.map((n) => [String(n), t("push.minutes", { n })])], "");
    options(escalate, [["", t("push.escalate.no")], ...ESCALATE_MIN.map((n) => [String(n), t("push.minutes", { n })])],
      view.escalate_s === null ? "" : String(view.escalate_s / 60));
  }

  /** @param {HTMLSelectElement} select @param {string[][]} choices @param {string} value */
  function options(select, choices, value) {
    select.replaceChildren(...choices.map(([name, label]) => make("option", { value: name }, label)));
    select.value = value;
  }

  async function load() {
    section.hidden = !signedIn || !may("viewer");
    if (section.hidden) return;
    const view = await get("/api/v1/push");
    on = view.browsers > 0 && "serviceWorker" in navigator && "PushManager" in window && await current() !== null;
    show(view);
  }

  return { section, load };
}
