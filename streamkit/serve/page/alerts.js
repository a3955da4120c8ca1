// Alerts that no one has reviewed: their number in the navigation and the title, and a sound for new ones.

import { get } from "./api.js";
import { make, say, text } from "./dom.js";
import { t } from "./strings.js";

const STORE = "streamkit.sound", EVERY_MS = 5000, TONES_HZ = [880, 660], TONE_S = .18;

let count = 0, title = "streamkit";
/** @type {number | null} the id of the newest alert that was seen; null until the first look */
let newest = null;

/** @type {Set<() => void>} */
const changed = new Set();

/**
 * Calls `callback` when the number of open items has changed; returns a function that ends this.
 * @param {() => void} callback
 */
export function onAlerts(callback) {
  changed.add(callback);
  return () => changed.delete(callback);
}

/**
 * Sets the title of the page; the number of open alerts stands before it.
 * @param {string} words
 */
export function setTitle(words) {
  title = words;
  document.title = count ? `(${count}) ${title}` : title;
}

export function soundOn() {
  try {
    return localStorage.getItem(STORE) === "on";
  } catch {
    return false;
  }
}

/** @param {boolean} on */
export function setSound(on) {
  try {
    localStorage.setItem(STORE, on ? "on" : "off");
  } catch { /* no storage: the sound stays off */ }
  if (on) beep(); // lets the user hear it, and the browser allow it
}

/** @type {AudioContext | null} */
let audio = null;

function beep() {
  try {
    audio ??= new AudioContext();
    audio.resume().catch(() => null); // until the first click, the browser allows no sound
    const volume = audio.createGain();
    volume.gain.value = .15;
    volume.connect(audio.destination);
    for (const [place, frequency] of TONES_HZ.entries()) {
      const tone = audio.createOscillator();
      tone.frequency.value = frequency;
      tone.connect(volume);
      tone.start(audio.currentTime + place * TONE_S);
      tone.stop(audio.currentTime + (place + 1) * TONE_S);
    }
  } catch (trouble) { // a browser without sound
    console.warn(trouble);
  }
}

// Asks the server how many alerts are open, and shows it.
export async function lookForAlerts() {
  const { alert } = await get("/api/v1/review/open");
  const open = Object.values(/** @type {Record<string, number>} */ (alert)).reduce((total, n) => total + n, 0);
  const [latest] = open ? await get("/api/v1/review?severity=alert&reviewed=false&limit=1") : [];
  const fresh = newest !== null && latest && (latest.id > newest || open > count); // a notice may become an alert
  newest = Math.max(newest ?? 0, latest?.id ?? 0);
  if (open === count && !fresh) return;
  count = open;
  if (fresh) {
    say(t("review.new", { text: latest.text }));
    if (soundOn()) beep();
  }
  setTitle(title);
  const link = document.querySelector('#views a[data-view="review"]');
  let badge = link?.querySelector(".problem-count");
  if (link && !badge) link.append(badge = make("span", { class: "problem-count bad" }));
  if (badge) text(badge, count ? String(count) : "");
  for (const callback of changed) callback();
}

export function watchAlerts() {
  lookForAlerts().catch(() => null);
  setInterval(() => lookForAlerts().catch(() => null), EVERY_MS); // also while the page is in the background
}
