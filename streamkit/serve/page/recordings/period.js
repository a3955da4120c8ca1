// The period that the timeline shows, the times of its axis, and times in words with their zone.

export const SHORTEST_S = 10;
export const LONGEST_S = 31 * 86400;
const STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 2 * 86400, 7 * 86400];
const DAY_S = 86400;

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
const date = new Intl.DateTimeFormat(undefined, { weekday: "short", year: "numeric", month: "short", day: "numeric" });
const dated = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" });

/** @param {number} time_s */
const at = (time_s) => new Date(time_s * 1000);

/** @param {number} time_s */
export const clockOf = (time_s) => clock.format(at(time_s));

/** @param {number} time_s */
export const dateOf = (time_s) => date.format(at(time_s));

/** @param {number} time_s */
export const momentWords = (time_s) => dated.format(at(time_s));

/**
 * The short name of the zone at a time: it differs in summer.
 * @param {number} time_s
 */
export const zoneOf = (time_s) => zone.formatToParts(at(time_s)).find(({ type }) => type === "timeZoneName")?.value ?? "";

/**
 * The zone of this machine and its short name at a time, such as `Europe/Berlin (GMT+2)`.
 * @param {number} time_s
 */
export function zoneWords(time_s) {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const abbreviation = zoneOf(time_s);
  return name === abbreviation ? name : `${name} (${abbreviation})`;
}

/**
 * A time as `datetime-local` has it, by the clock of this machine.
 * @param {number} time_s
 */
export function localInput(time_s) {
  const shifted = new Date((Math.floor(time_s) + offset_s(time_s)) * 1000);
  return shifted.toISOString().slice(0, 19);
}

/** @param {number} time_s */
const offset_s = (time_s) => -at(time_s).getTimezoneOffset() * 60;

/**
 * A length in hours, minutes and seconds: `1:02:03`, or `0:04.2` for a few seconds.
 * @param {number} length_s
 */
export function lengthOf(length_s) {
  if (length_s < 10) return `${length_s.toFixed(1)} s`;
  const whole = Math.round(length_s);
  const minutes = Math.floor(whole / 60) % 60;
  const hours = Math.floor(whole / 3600);
  const padded = (/** @type {number} */ count) => String(count).padStart(2, "0");
  return hours ? `${hours}:${padded(minutes)}:${padded(whole % 60)}` : `${minutes}:${padded(whole % 60)}`;
}

export class Period {
  /**
   * @param {number} from_s
   * @param {number} to_s
   */
  constructor(from_s, to_s) {
    this.from_s = from_s;
    this.to_s = to_s;
  }

  /**
   * @param {number} time_s
   * @param {number} span_s
   */
  static around(time_s, span_s) {
    return new Period(time_s - span_s / 2, time_s + span_s / 2);
  }

  get span_s() {
    return this.to_s - this.from_s;
  }

  /**
   * Where a time is, from 0 to 1.
   * @param {number} time_s
   */
  share(time_s) {
    return (time_s - this.from_s) / this.span_s;
  }

  /** @param {number} share */
  time(share) {
    return this.from_s + share * this.span_s;
  }

  /** @param {number} time_s */
  has(time_s) {
    return this.from_s <= time_s && time_s <= this.to_s;
  }

  /**
   * A shorter or longer period in which a time stays where it is.
   * @param {number} factor
   * @param {number} time_s
   */
  zoomed(factor, time_s) {
    const span_s = Math.min(LONGEST_S, Math.max(SHORTEST_S, this.span_s * factor));
    const from_s = time_s - this.share(time_s) * span_s;
    return new Period(from_s, from_s + span_s);
  }

  /** @param {number} by_s */
  moved(by_s) {
    return new Period(this.from_s + by_s, this.to_s + by_s);
  }
}

/**
 * The times of an axis: whole seconds, minutes, hours or days by the local clock, also after the clocks are changed.
 * @param {Period} period
 * @param {number} count at most
 * @returns {{ step_s: number, times: number[] }}
 */
export function axisTimes(period, count) {
  const step_s = STEPS_S.find((candidate) => period.span_s / candidate <= count) ?? 14 * DAY_S;
  /** @type {number[]} */
  const times = [];
  const first_s = Math.ceil((period.from_s + offset_s(period.from_s)) / step_s) * step_s;
  for (let local_s = first_s; ; local_s += step_s) {
    const time_s = local_s - offset_s(local_s - offset_s(period.from_s));
    if (time_s > period.to_s || times.length > 4 * count) break;
    if (time_s >= period.from_s && time_s !== times[times.length - 1]) times.push(time_s);
  }
  return { step_s, times };
}

/**
 * @param {number} time_s
 * @param {number} step_s
 */
export function axisWords(time_s, step_s) {
  const midnight = (time_s + offset_s(time_s)) % DAY_S === 0;
  if (step_s >= DAY_S || midnight) return day.format(at(time_s));
  return (step_s < 60 ? clock : short).format(at(time_s));
}
