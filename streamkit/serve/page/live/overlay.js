// Draws a frame's objects, trails, zones, lines, masks and key points over its picture.

import { Labels } from "./labels.js";
import { maskImage } from "./mask.js";

const TRAIL_S = 2;
const SMALL = 140; // height of a picture below which texts would hide it
const LONG = 32; // characters of an answer with its name, up to which it is shown
const SURE = 0.3; // score from which a key point is shown

/** @typedef {import("./records.js").FrameRecord} FrameRecord */
/** @typedef {import("./records.js").Found} Found */

// The colors of streamkit/ops/style.py: a class has the same one here, in drawn videos and in images.
const PALETTE = [
  0x2E93FF, 0xFF9F1C, 0x2EC27E, 0xE5383B, 0xB57BFF, 0xFFD60A, 0x00C2D1, 0xFF6FB5, 0x1E7800, 0xA51E87,
  0x4BFFD2, 0xFFC3FF, 0x0069A5, 0xA5870F, 0x009687, 0x874BD2, 0xB46987, 0xFFA5A5, 0x87F078, 0x965A1E,
];

/** @param {number} number */
const color = (number) => `#${PALETTE[number % PALETTE.length].toString(16).padStart(6, "0")}`;

/**
 * Black or white, whichever is easier to read, by the relative luminance of WCAG 2.
 * @param {string} ground such as #2e93ff
 */
function ink(ground) {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const value = parseInt(ground.slice(at, at + 2), 16) / 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#000" : "#fff";
}

/**
 * The label of an object, as streamkit/ops/annotate.py writes it on drawn videos: class, identity or track, attributes, score.
 * @param {Found} object
 */
export const words = (object) => forms(object)[0];

/**
 * The label of an object, from the whole one to the shortest: without the score, without the class, and the number alone.
 * @param {Found} object
 */
export function forms(object) {
  const number = object.identity !== undefined ? `id ${object.identity}` : object.track_id === undefined ? "" : `#${object.track_id}`;
  const name = object.label ?? String(object.class_id), facts = attributes(object.attributes ?? {});
  const lists = [[name, number, facts, object.score?.toFixed(2)], [name, number, facts], [number, facts], [number || name]];
  return [...new Set(lists.map((parts) => parts.filter(Boolean).join(" ")).filter(Boolean))];
}

/**
 * The labels of attributes, each up to its first comma; answers, which have no score, with their names unless they are long.
 * @param {NonNullable<Found["attributes"]>} found
 */
function attributes(found) {
  const every = Object.entries(found), labels = every.filter(([, one]) => one.score !== null).map(([, one]) => one.label.split(",")[0]);
  const answers = every.filter(([, one]) => one.score === null).map(([name, one]) => `${name}: ${one.label}`);
  return [...labels, answers.filter((text) => text.length <= LONG).join(", ")].filter(Boolean).join(" ");
}

export class Overlay {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {import("./records.js").Records} records
   */
  constructor(canvas, records) {
    this.canvas = canvas;
    this.records = records;
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    this.size = 0; // of texts, in pixels of the canvas; 0 for none
    this.labels = new Labels();
    /** @type {import("./labels.js").Area[]} */
    this.texts = []; // the areas of texts of shapes
  }

  clear() {
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.clearRect(0, 0, this.canvas.width, this.canvas.height);
  }

  /**
   * @param {FrameRecord | null} record
   * @param {{ width: number, height: number }} picture the size of the picture as shown, whatever its unit
   * @param {Record<string, boolean>} show what is drawn
   */
  draw(record, picture, show) {
    const { canvas, context } = this, ratio = window.devicePixelRatio || 1;
    const width = Math.round(canvas.clientWidth * ratio), height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    this.clear();
    if (!record || !picture.width || !width) return;
    const scale = Math.min(width / picture.width, height / picture.height);
    const shown = { width: picture.width * scale, height: picture.height * scale };
    const left = (width - shown.width) / 2, top = (height - shown.height) / 2;
    const x = shown.width / record.width, y = shown.height / record.height;
    /** @param {number[]} point */
    const at = ([px, py]) => /** @type {[number, number]} */ ([left + px * x, top + py * y]);
    context.lineWidth = Math.max(1.5 * ratio, shown.height / 300);
    context.lineJoin = "round";
    this.size = shown.height < SMALL * ratio ? 0 : Math.min(12 * ratio, Math.max(8 * ratio, shown.height / 34));
    if (show.masks) for (const one of record.objects) if (one.mask) this.mask(one, at, shown);
    this.texts = [];
    if (show.shapes) for (const shape of record.shapes) this.shape(shape, record, at);
    if (show.trails) this.trails(record, at);
    for (const one of record.objects) {
      context.strokeStyle = context.fillStyle = color(one.class_id);
      if (show.boxes) this.box(one, at);
      if (show.masks) for (const [px, py, score] of one.keypoints ?? []) if (!(score < SURE)) this.dot(at([px, py]), ratio);
    }
    if (show.labels && this.size) this.label(record.objects, at);
  }

  /**
   * @param {Found} one
   * @param {(point: number[]) => [number, number]} at
   */
  box(one, at) {
    const [x1, y1, x2, y2] = one.box;
    this.line(one.corners ?? [[x1, y1], [x2, y1], [x2, y2], [x1, y2]], at, true);
  }

  /**
   * @param {number[][]} points
   * @param {(point: number[]) => [number, number]} at
   * @param {boolean} closed
   */
  line(points, at, closed) {
    const { context } = this;
    context.beginPath();
    for (const point of points) context.lineTo(...at(point));
    if (closed) context.closePath();
    context.stroke();
  }

  /**
   * @param {[number, number]} place
   * @param {number} ratio
   */
  dot([x, y], ratio) {
    this.context.beginPath();
    this.context.arc(x, y, 2.5 * ratio, 0, 7);
    this.context.fill();
  }

  /**
   * @param {Found[]} objects
   * @param {(point: number[]) => [number, number]} at
   */
  label(objects, at) {
    const labeled = objects.map((object) => ({ key: object.track_id === undefined ? "" : `${object.stage} ${object.track_id}`,
      box: [...at(object.box), ...at(object.box.slice(2))], forms: forms(object), ground: color(object.class_id) }));
    const labels = this.labels.place(labeled, this.texts, this.canvas, this.high, (text) => this.widthOf(text));
    for (const label of labels) this.text(label.text, label, label.ground);
  }

  get high() {
    return this.size * 1.35;
  }

  /** @param {string} words */
  widthOf(words) {
    this.context.font = `600 ${this.size}px system-ui, "DejaVu Sans", sans-serif`;
    return this.context.measureText(words).width + this.size * 0.6;
  }

  /**
   * @param {string} words
   * @param {import("./labels.js").Area} area
   * @param {string} ground
   */
  text(words, { left, top, wide, high }, ground) {
    const { context, size } = this;
    context.font = `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
    context.textBaseline = "middle";
    context.fillStyle = ground;
    context.fillRect(left, top, wide, high);
    context.fillStyle = ink(ground);
    context.fillText(words, left + size * 0.3, top + high / 2);
  }

  /**
   * @param {import("./records.js").Shape} shape
   * @param {FrameRecord} record
   * @param {(point: number[]) => [number, number]} at
   */
  shape(shape, record, at) {
    const share = shape.units === "share";
    const points = share ? shape.points.map(([px, py]) => [px * record.width, py * record.height]) : shape.points;
    const { context } = this;
    context.strokeStyle = "#ffd84d";
    this.line(points, at, shape.closed);
    if (shape.closed) {
      context.fillStyle = "rgb(255 216 77 / .12)";
      context.fill();
    }
    if (!shape.text || !this.size) return;
    const [x, y] = at(points[0]), wide = this.widthOf(shape.text), { high } = this;
    const area = { left: Math.max(0, Math.min(x, this.canvas.width - wide)), top: y < high ? y : y - high, wide, high };
    this.texts.push(area);
    this.text(shape.text, area, "#ffd84d");
  }

  /**
   * @param {FrameRecord} record
   * @param {(point: number[]) => [number, number]} at
   */
  trails(record, at) {
    /** @type {Map<number, { class_id: number, points: number[][] }>} */
    const trails = new Map();
    for (const one of record.objects) if (one.track_id !== undefined) trails.set(one.track_id, { class_id: one.class_id, points: [] });
    if (trails.size === 0) return;
    for (const past of this.records.before(record, TRAIL_S)) {
      for (const { track_id, box } of past.objects) {
        if (track_id !== undefined) trails.get(track_id)?.points.push([(box[0] + box[2]) / 2, box[3]]);
      }
    }
    for (const { track_id, box } of record.objects) { // which may be on the way to the next record
      if (track_id !== undefined) trails.get(track_id)?.points.push([(box[0] + box[2]) / 2, box[3]]);
    }
    for (const { class_id, points } of trails.values()) {
      this.context.strokeStyle = color(class_id);
      this.line(points, at, false);
    }
  }

  /**
   * @param {Found} object
   * @param {(point: number[]) => [number, number]} at
   * @param {{ width: number, height: number }} shown
   */
  mask(object, at, shown) {
    const image = object.mask && maskImage(object.mask, color(object.class_id));
    if (!image) return;
    this.context.globalAlpha = 0.45;
    this.context.drawImage(image, ...at(object.shift ?? [0, 0]), shown.width, shown.height);
    this.context.globalAlpha = 1;
  }
}
