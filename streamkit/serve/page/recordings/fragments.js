// The times of the frames of a fragmented MP4, for steps by frame: a browser's video has no such list.

/** @typedef {{ type: string, from: number, to: number }} Box `from` is where its content begins */
/** @typedef {{ id: number, timescale: number, duration: number }} Track `duration` is that of frames without their own */

const CONTAINERS = new Set(["moov", "trak", "mdia", "mvex", "moof", "traf"]);

/**
 * All boxes, outer ones before those that they contain.
 * @param {DataView} view
 * @param {number} from
 * @param {number} to
 * @returns {Generator<Box>}
 */
function* boxes(view, from, to) {
  for (let at = from; at + 8 <= to;) {
    let size = view.getUint32(at);
    let header = 8;
    if (size === 1) {
      size = Number(view.getBigUint64(at + 8));
      header = 16;
    }
    const end = size === 0 ? to : at + size;
    if (size !== 0 && size < header || end > to) return; // cut off
    const type = String.fromCharCode(view.getUint8(at + 4), view.getUint8(at + 5), view.getUint8(at + 6), view.getUint8(at + 7));
    yield { type, from: at + header, to: end };
    if (CONTAINERS.has(type)) yield* boxes(view, at + header, end);
    at = end;
  }
}

/**
 * @param {DataView} view
 * @param {number} at
 * @param {boolean} long
 */
const integer = (view, at, long) => (long ? Number(view.getBigUint64(at)) : view.getUint32(at));

/**
 * The video track; null without one.
 * @param {DataView} view
 * @returns {Track | null}
 */
function videoTrack(view) {
  /** @type {Track[]} */
  const tracks = [];
  /** @type {Track | null} */
  let video = null;
  for (const { type, from } of boxes(view, 0, view.byteLength)) {
    const long = view.byteLength > from && view.getUint8(from) === 1;
    const track = tracks[tracks.length - 1];
    if (type === "moof") break;
    if (type === "tkhd") tracks.push({ id: view.getUint32(from + (long ? 20 : 12)), timescale: 1, duration: 0 });
    else if (type === "mdhd") track.timescale = view.getUint32(from + (long ? 20 : 12));
    else if (type === "hdlr" && view.getUint32(from + 8) === 0x76696465) video = track; // "vide"
    else if (type === "trex") {
      const extended = tracks.find(({ id }) => id === view.getUint32(from + 4));
      if (extended) extended.duration = view.getUint32(from + 12);
    }
  }
  return video;
}

/**
 * The times of all frames after the first one, in seconds, in the order in which they are shown; the first is 0.
 * @param {ArrayBuffer} data
 * @returns {number[]} empty without a video track
 */
export function frameTimes(data) {
  const view = new DataView(data);
  const track = videoTrack(view);
  if (!track) return [];
  /** @type {number[]} */
  const times = [];
  let active = false;
  let duration = 0;
  let decoded = 0; // decode time of the next frame
  for (const { type, from } of boxes(view, 0, view.byteLength)) {
    if (type === "tfhd") {
      const flags = view.getUint32(from) & 0xffffff;
      active = view.getUint32(from + 4) === track.id;
      duration = flags & 8 ? view.getUint32(from + 8 + (flags & 1 ? 8 : 0) + (flags & 2 ? 4 : 0)) : track.duration;
    } else if (type === "tfdt" && active) {
      decoded = integer(view, from + 4, view.getUint8(from) === 1);
    } else if (type === "trun" && active) {
      decoded = readRun(view, from, decoded, duration, (shown) => times.push(shown / track.timescale));
    }
  }
  times.sort((first, second) => first - second);
  return times.map((time_s) => time_s - times[0]);
}

/**
 * @param {DataView} view
 * @param {number} from
 * @param {number} decoded
 * @param {number} usual the duration of frames that have none of their own
 * @param {(shown: number) => void} add
 * @returns {number} the decode time after the run
 */
function readRun(view, from, decoded, usual, add) {
  const flags = view.getUint32(from) & 0xffffff;
  const signed = view.getUint8(from) > 0;
  const count = view.getUint32(from + 4);
  let at = from + 8 + (flags & 1 ? 4 : 0) + (flags & 4 ? 4 : 0);
  let next = decoded;
  for (let sample = 0; sample < count; sample += 1) {
    let duration = usual;
    let shift = 0;
    if (flags & 0x100) duration = view.getUint32(at);
    at += (flags & 0x100 ? 4 : 0) + (flags & 0x200 ? 4 : 0) + (flags & 0x400 ? 4 : 0);
    if (flags & 0x800) {
      shift = signed ? view.getInt32(at) : view.getUint32(at);
      at += 4;
    }
    add(next + shift);
    next += duration;
  }
  return next;
}
