// The records of the sources on the screen, from one WebSocket, kept for a few seconds by source and time.

const KEPT_S = 4, AGAIN_MS = 1000;
const SAME_S = 0.004; // two times of one frame
const HELD_S = 0.5; // how long objects stay where a frame has no record: sources that skip frames, records that are late

/** @typedef {{ box: number[], score: number, class_id: number, label?: string, track_id?: number, identity?: number, stage?: string, corners?: number[][],
 *   attributes?: { [name: string]: { label: string, score: number | null } }, keypoints?: number[][], mask?: { size: number[], counts: string } }} Found */
/** @typedef {{ name: string, text: string, closed: boolean, units: string, points: number[][] }} Shape */
/** @typedef {{ source: string, frame: number, pts_s: number, width: number, height: number, objects: Found[],
 *   shapes: Shape[], skipped?: string[] }} FrameRecord */

/**
 * Objects that were not searched for on a frame, and that no tracker predicts, stay where they were.
 * @param {FrameRecord} record
 * @param {FrameRecord} before
 */
function hold(record, before) {
  const skipped = record.skipped ?? [];
  const known = new Set(record.objects.map((one) => one.stage));
  record.objects.push(...before.objects.filter((one) => !known.has(one.stage) && (one.stage === undefined || skipped.includes(one.stage))));
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
    while (list[old].pts_s < record.pts_s - KEPT_S) old += 1;
    list.splice(0, old);
    this.arrived(record);
  }

  /**
   * The record of a frame; or of the last frame before it that has one.
   * @param {string} id
   * @param {number} pts_s
   */
  find(id, pts_s) {
    const list = this.kept.get(id) ?? [];
    for (let at = list.length - 1; at >= 0; at -= 1) {
      const away = pts_s - list[at].pts_s;
      if (away >= -SAME_S) return away <= HELD_S ? list[at] : null;
    }
    return null;
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
