// The records of the sources on the screen, from one WebSocket, kept for a few seconds by source and time.

const KEPT_S = 4, KEPT = 3; // seconds and number of records that are kept; slow sources have fewer than one a second
const AGAIN_MS = 1000;
const SAME_S = 0.004; // two times of one frame
const HELD_INTERVALS = 1.5; // how long an object stays after its last record, in intervals of the source's records
const HELD_S = 0.5; // the same, before the interval is known
const CLOSE_INTERVALS = 3; // how far two records of a track may be apart for its box to move from one to the other
const INTERVALS = 9; // records over which the interval is measured

/** @typedef {{ box: number[], score: number, class_id: number, label?: string, track_id?: number, identity?: number, stage?: string, corners?: number[][],
 *   attributes?: { [name: string]: { label: string, score: number | null } }, keypoints?: number[][], mask?: { size: number[], counts: string },
 *   held?: boolean, shift?: number[] }} Found `held` if it was copied from the record before; `shift` is how far a mask has moved, in pixels */
/** @typedef {{ name: string, text: string, closed: boolean, units: string, points: number[][] }} Shape */
/** @typedef {{ source: string, frame: number, pts_s: number, width: number, height: number, objects: Found[],
 *   shapes: Shape[], skipped?: string[] }} FrameRecord */
/** @typedef {FrameRecord & { fresh: boolean }} Moment what there is on a frame; `fresh` if its record is not too old for it */

/**
 * Objects that were not searched for on a frame, and that no tracker predicts, stay where they were.
 * @param {FrameRecord} record
 * @param {FrameRecord} before
 */
function hold(record, before) {
  const skipped = record.skipped ?? [];
  const present = new Set(record.objects.map(({ stage }) => stage));
  const missing = before.objects.filter(({ stage }) => !present.has(stage) && (stage === undefined || skipped.includes(stage)));
  record.objects.push(...missing.map((object) => ({ ...object, held: true })));
}

/**
 * The same track in another record, where it was seen and not held.
 * @param {FrameRecord} record
 * @param {Found} object
 */
const seenIn = (record, object) => record.objects.find(({ held, track_id, stage }) => !held && track_id === object.track_id && stage === object.stage);

/**
 * Points between those of two records, or those of the first if the second has other ones.
 * @param {number[][] | undefined} from
 * @param {number[][] | undefined} to
 * @param {number} share 0 for the first, 1 for the second
 */
function between(from, to, share) {
  if (!from || from.length !== to?.length) return from;
  return from.map((point, place) => point.map((position, axis) => position + (to[place][axis] - position) * share));
}

export class Records {
  /** @param {(record: FrameRecord) => void} arrived called with each record */
  constructor(arrived) {
    this.arrived = arrived;
    /** @type {Map<string, FrameRecord[]>} */
    this.kept = new Map();
    this.asked = "";
    /** @type {WebSocket | null} */
    this.socket = null;
  }

  /** @param {string[]} ids the sources to listen to; none closes the connection */
  watch(ids) {
    const asked = ids.map((id) => `source=${encodeURIComponent(id)}`).join("&");
    if (asked === this.asked) return;
    this.asked = asked;
    for (const id of this.kept.keys()) if (!ids.includes(id)) this.kept.delete(id);
    this.connect();
  }

  connect() {
    const before = this.socket;
    this.socket = null;
    before?.close();
    if (!this.asked) return;
    const socket = this.socket = new WebSocket(new URL(`/api/v1/records?batch=true&${this.asked}`, location.href.replace("http", "ws")));
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (Array.isArray(message)) for (const record of message) this.keep(record); // others are events
    };
    socket.onclose = () => setTimeout(() => this.socket === socket && this.connect(), AGAIN_MS);
  }

  /** @param {FrameRecord} record */
  keep(record) {
    let list = this.kept.get(record.source);
    if (!list) this.kept.set(record.source, list = []);
    if (list.length && record.pts_s < list[list.length - 1].pts_s) list.length = 0; // the source began again
    if (record.skipped?.length && list.length) hold(record, list[list.length - 1]);
    list.push(record);
    let old = 0;
    while (list.length - old > KEPT && list[old].pts_s < record.pts_s - KEPT_S) old += 1;
    list.splice(0, old);
    this.arrived(record);
  }

  /**
   * The usual time between two records of a source in which its objects were searched for, in seconds; null if not yet known.
   * @param {string} id
   */
  interval_s(id) {
    const list = this.kept.get(id) ?? [], searched = list.filter(({ skipped }) => !skipped?.length);
    const times = (searched.length > 1 ? searched : list).slice(-INTERVALS).map(({ pts_s }) => pts_s);
    const gaps = times.slice(1).map((pts_s, place) => pts_s - times[place]).sort((a, b) => a - b);
    return gaps.length ? gaps[Math.floor(gaps.length / 2)] : null;
  }

  /**
   * The newest record of a source, or null.
   * @param {string} id
   */
  newest(id) {
    return this.kept.get(id)?.at(-1) ?? null;
  }

  /**
   * What there is on a frame: shapes always, once there is a record, and the objects near its time. Between two records, tracks
   * move from one to the other.
   * @param {string} id
   * @param {number} pts_s
   * @returns {Moment | null}
   */
  at(id, pts_s) {
    const list = this.kept.get(id) ?? [];
    if (!list.length) return null;
    const place = /** @type {any} */ (list).findLastIndex((/** @type {FrameRecord} */ record) => record.pts_s <= pts_s + SAME_S);
    if (place < 0) return { ...list[0], objects: [], fresh: false };
    const record = list[place], interval_s = this.interval_s(id);
    const held = pts_s - record.pts_s <= (interval_s === null ? HELD_S : interval_s * HELD_INTERVALS) + SAME_S;
    const objects = record.objects.flatMap((object) => {
      const moved = interval_s === null ? null : this.moved(list, place, object, pts_s, interval_s * CLOSE_INTERVALS);
      return moved ?? (held ? object : []);
    });
    return { ...record, objects, fresh: held };
  }

  /**
   * An object on the way from the record in which it was seen last to the next one; null if it has none, or it is far.
   * @param {FrameRecord[]} list
   * @param {number} place of the record at or before the time
   * @param {Found} object
   * @param {number} pts_s
   * @param {number} close_s
   */
  moved(list, place, object, pts_s, close_s) {
    if (object.track_id === undefined) return null;
    let from = place;
    while (object.held && from > 0 && !seenIn(list[from], object)) from -= 1;
    let to = place + 1;
    while (to < list.length && !seenIn(list[to], object) && list[to].objects.some(({ held, track_id }) => held && track_id === object.track_id)) to += 1;
    const first = seenIn(list[from], object), second = to < list.length ? seenIn(list[to], object) : undefined;
    if (!first || !second || list[to].pts_s - list[from].pts_s > close_s) return null;
    const share = Math.max(0, pts_s - list[from].pts_s) / (list[to].pts_s - list[from].pts_s);
    const [x1, y1, x2, y2] = /** @type {number[][]} */ (between([first.box], [second.box], share))[0];
    return { ...object, box: [x1, y1, x2, y2], corners: between(first.corners, second.corners, share),
      keypoints: between(first.keypoints, second.keypoints, share),
      shift: [(x1 + x2 - first.box[0] - first.box[2]) / 2, (y1 + y2 - first.box[1] - first.box[3]) / 2] };
  }

  /**
   * The records of a source up to a record, the oldest first.
   * @param {FrameRecord} last
   * @param {number} for_s
   */
  before(last, for_s) {
    return (this.kept.get(last.source) ?? []).filter((one) => one.pts_s <= last.pts_s && one.pts_s > last.pts_s - for_s);
  }

  close() {
    this.watch([]);
  }
}
