// One review item: its picture with the object's path, its clip, and what people note about it.

import { call, get } from "../api.js";
import { ago, make, say, svg, text, why } from "../dom.js";
import { modal } from "../modal.js";
import { address } from "../router.js";
import { askToken, signedIn } from "../session.js";
import { t } from "../strings.js";
import { clip, refusal } from "./event-detail.js";
import { moment } from "./shared.js";

/** @typedef {import("../types").ReviewView} ReviewView */

const MAX_COMMENT = 2000, SEARCHED = 8; // events that are searched for a clip

/**
 * How long an item was, in words.
 * @param {ReviewView} item
 */
export const lasted = ({ started_s, ended_s }) => (ended_s - started_s < 1 ? t("review.moment") : t("review.lasted", { time: ago(ended_s - started_s) }));

/**
 * @param {HTMLElement} box
 * @param {ReviewView} item
 * @param {number[]} events
 * @param {{ close: () => void, changed: (item: ReviewView) => void, deleted: () => void }} on
 */
export function openItem(box, item, events, on) {
  const base = `/api/v1/review/${item.id}`, link = address("review", { item: item.id });
  const error = make("p", { class: "error", role: "alert" }), media = make("div", { class: "media" });
  const comment = make("textarea", { id: "review-comment", maxlength: MAX_COMMENT, rows: 2 });
  comment.value = item.comment;
  let closed = false;

  /** @param {object} change */
  async function patch(change) {
    if (!signedIn) return askToken();
    const typed = comment.value === item.comment ? {} : { comment: comment.value }; // the item is drawn again
    try {
      text(error, "");
      on.changed(await call("PATCH", base, { ...typed, ...change }));
      if ("comment" in change) say(t("review.saved"));
    } catch (trouble) {
      text(error, why(trouble));
    }
  }

  async function share() {
    const whole = new URL(link, location.href).href;
    try {
      await navigator.clipboard.writeText(whole);
      say(t("review.shared"));
    } catch { // no clipboard without TLS: the address bar has the link
      location.hash = link;
    }
  }

  function remove() {
    if (!signedIn) return void askToken();
    modal({ title: t("review.deleteTitle"), body: [make("p", {}, t("review.deleteText"))], save: t("review.delete"), danger: true,
      cancel: t("review.cancel"), submit: async () => {
        await call("DELETE", base);
        on.deleted();
      } });
  }

  /** @param {string} words @param {() => void} work @param {string} [needs] */
  const button = (words, work, needs) => make("button", { type: "button", class: "small", "data-needs": needs, onclick: work }, words);
  const facts = [moment(item.started_s), item.name, lasted(item), ...(item.reviewed_by === null ? [] : [t("review.by", { name: item.reviewed_by })]),
    ...(item.kept ? [t("review.kept")] : [])].join(" · ");
  if (signedIn && item.image) media.append(picture(item, `${base}/image.jpg`));
  box.replaceChildren(
    make("div", { class: "review-buttons" },
      button(t(item.reviewed_by === null ? "review.mark" : "review.unmark"), () => patch({ reviewed: item.reviewed_by === null }), "operator"),
      make("button", { type: "button", class: "small", "data-needs": "operator", title: t("review.keepHelp"), onclick: () => patch({ kept: !item.kept }) },
        t(item.kept ? "review.unkeep" : "review.keep")),
      button(t("review.share"), share), button(t("review.delete"), remove, "operator"), button(t("review.close"), on.close)),
    make("h3", {}, make("span", { class: `severity ${item.severity}` }, t(`review.severity.${item.severity}`)), ` ${item.text}`),
    make("p", { class: "faint" }, facts), error, media,
    make("div", { "data-needs": "operator" }, make("label", { for: comment.id }, t("review.comment")), comment,
      button(t("review.save"), () => patch({ comment: comment.value }))),
    ...(item.comment ? [make("p", { class: "review-note" }, item.comment)] : []),
    make("p", { class: "links" }, make("a", { href: address("events", { number: item.number }) }, t("review.events"))));
  if (signedIn) showClip();

  async function showClip() {
    for (const number of events.slice(0, SEARCHED)) {
      const event = await get(`/api/v1/events/${number}`).catch(() => null);
      if (closed) return;
      if (event?.clip) return void clip(event, `/api/v1/events/${number}/clip.mp4`, media);
    }
  }

  return {
    close() {
      closed = true;
      const video = media.querySelector("video");
      video?.pause();
      video?.removeAttribute("src");
      video?.load(); // or it goes on loading
    },
  };
}

/**
 * The whole picture with the path of the object over it.
 * @param {ReviewView} item
 * @param {string} source
 */
function picture(item, source) {
  /** @type {HTMLImageElement} */
  const image = make("img", { src: source, alt: t("review.picture", { text: item.text }), onerror: async () => {
    frame.replaceWith(make("p", { class: "message" }, await refusal(source) ?? t("review.away")));
  } });
  const frame = make("div", { class: "review-picture" }, image);
  if (item.path.length > 1) {
    const points = item.path.map(([, x, y]) => `${(x * 100).toFixed(2)},${(y * 100).toFixed(2)}`).join(" ");
    const [, x, y] = item.path[item.path.length - 1];
    frame.append(svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": t("review.path") },
      svg("polyline", { points, "vector-effect": "non-scaling-stroke" }),
      svg("line", { x1: x * 100, x2: x * 100, y1: y * 100, y2: y * 100, "vector-effect": "non-scaling-stroke" })));
  }
  return frame;
}
