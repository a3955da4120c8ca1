// What views share: times in words.

import { now_s } from "../clock.js";

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dated = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/**
 * A time as words: the clock, and the date unless it is today.
 * @param {number | string} seconds since 1970
 */
export function moment(seconds) {
  const when = new Date(Number(seconds) * 1000);
  return (when.toDateString() === new Date(now_s() * 1000).toDateString() ? clock : dated).format(when);
}

/**
 * A time on an axis: the clock without seconds; the date for long periods.
 * @param {number} seconds since 1970
 * @param {number} span the length of the axis in seconds
 */
export const tick = (seconds, span) => (span > 3 * 86400 ? day : short).format(new Date(seconds * 1000));

/**
 * The times of an axis that people expect: whole minutes, hours or days, by the local clock.
 * @param {number} from
 * @param {number} to
 * @param {number} most
 */
export function timeTicks(from, to, most) {
  const steps = [60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 5 * 86400, 10 * 86400];
  const step = steps.find((one) => (to - from) / one <= most) ?? 30 * 86400;
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const found = [];
  for (let at = Math.ceil((from - shift) / step) * step + shift; at <= to; at += step) found.push(at);
  return found;
}
