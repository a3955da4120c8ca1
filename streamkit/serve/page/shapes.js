// Areas and lines that a user draws: the shapes of one option, their changes, and undo. Coordinates are pixels of the
// source; they become the option's units when they are sent.

/** @typedef {[number, number]} Point */
/** @typedef {{ name: string, points: Point[], sources: string[] }} Shape `sources` is empty for all sources */

export const SNAP = 10; // pixels on the screen within which a point is set to the edge of the frame

/**
 * Points of the API as pixels of a frame.
 * @param {Record<string, number[][]>} given points by name
 * @param {string} units pixels or share
 * @param {Point} size width and height of the frame
 * @param {Record<string, string[]>} sources of shapes that are not for all, by name
 * @returns {Shape[]}
 */
export function fromApi(given, units, [width, height], sources) {
  const [x, y] = units === "share" ? [width, height] : [1, 1];
  return Object.entries(given).map(([name, points]) => ({
    name, points: points.map((one) => /** @type {Point} */ ([one[0] * x, one[1] * y])), sources: [...sources[name] ?? []],
  }));
}

/**
 * Whether a shape is used on a source.
 * @param {Shape} shape
 * @param {string} source
 */
export const usedOn = (shape, source) => !shape.sources.length || shape.sources.includes(source);

/**
 * Shapes as the API takes them; points that were not moved keep the digits that they have in the file.
 * @param {Shape[]} shapes
 * @param {string} units
 * @param {Point} size
 * @param {Record<string, number[][]>} known points as they are in the file, by name
 */
export function toApi(shapes, units, [width, height], known) {
  const [x, y] = units === "share" ? [width, height] : [1, 1];
  const old = Object.values(known).flat();
  const round = (/** @type {number} */ value, /** @type {number} */ digits) => Math.round(value * 10 ** digits) / 10 ** digits;
  const same = (/** @type {number} */ a, /** @type {number} */ b) => Math.abs(a - b) < 1e-6;
  const point = (/** @type {Point} */ one) => old.find((known) => same(known[0] * x, one[0]) && same(known[1] * y, one[1]))
    ?? (units === "share" ? [round(one[0] / x, 4), round(one[1] / y, 4)] : [Math.round(one[0]), Math.round(one[1])]);
  return Object.fromEntries(shapes.map((shape) => [shape.name, shape.points.map(point)]));
}

/**
 * A point within the frame; near its edge, on it.
 * @param {Point} point
 * @param {Point} size
 * @param {number} near distance in pixels of the frame
 * @returns {Point}
 */
export function snapped(point, size, near) {
  const [x, y] = point.map((value, axis) => (value < near ? 0 : value > size[axis] - near ? size[axis] : value));
  return [x, y];
}

/**
 * A shape that is moved, but not out of the frame.
 * @param {Point[]} points
 * @param {number} dx
 * @param {number} dy
 * @param {Point} size
 * @returns {Point[]}
 */
export function moved(points, dx, dy, size) {
  const [x, y] = [dx, dy].map((step, axis) => {
    const values = points.map((one) => one[axis]);
    const low = Math.min(0, -Math.min(...values)), high = Math.max(0, size[axis] - Math.max(...values));
    return Math.min(Math.max(step, low), high);
  });
  return points.map((one) => [one[0] + x, one[1] + y]);
}

/**
 * Where the arrow of a line is, and where it points: to the side that counts as in, the right one of its direction.
 * @param {Point[]} points
 * @returns {{ at: Point, to: Point }} `to` has the length 1
 */
export function inSide(points) {
  const lengths = points.slice(1).map((one, n) => Math.hypot(one[0] - points[n][0], one[1] - points[n][1]));
  let left = lengths.reduce((a, b) => a + b, 0) / 2, n = 0;
  while (n < lengths.length - 1 && left > lengths[n]) left -= lengths[n++];
  const [a, b] = [points[n], points[n + 1]], length = lengths[n] || 1;
  const way = [(b[0] - a[0]) / length, (b[1] - a[1]) / length];
  return { at: [a[0] + way[0] * left, a[1] + way[1] * left], to: [-way[1], way[0]] };
}

// The shapes of an option, with undo. Every change is one step.
export class Shapes {
  /** @param {Shape[]} shapes */
  constructor(shapes) {
    this.list = shapes;
    this.first = JSON.stringify(shapes);
    /** @type {string[]} */
    this.past = [];
    /** @type {string[]} */
    this.future = [];
  }

  get changed() {
    return JSON.stringify(this.list) !== this.first;
  }

  /**
   * Scales shares of a frame to the size of another camera's.
   * @param {Point} from the size that the points are for
   * @param {Point} to
   */
  scale(from, to) {
    const scaled = (/** @type {string} */ shapes) => JSON.stringify(JSON.parse(shapes).map((/** @type {Shape} */ shape) => (
      { ...shape, points: shape.points.map(([x, y]) => [(x / from[0]) * to[0], (y / from[1]) * to[1]]) })));
    this.list = JSON.parse(scaled(JSON.stringify(this.list)));
    this.first = scaled(this.first);
    this.past = this.past.map(scaled);
    this.future = this.future.map(scaled);
  }

  /** Remember the shapes as they are, before a change. */
  begin() {
    this.past.push(JSON.stringify(this.list));
    this.future = [];
  }

  /** Forget the last step if nothing has come of it. */
  settle() {
    if (this.past.at(-1) === JSON.stringify(this.list)) this.past.pop();
  }

  undo() {
    this.#step(this.past, this.future);
  }

  redo() {
    this.#step(this.future, this.past);
  }

  /**
   * @param {string[]} from
   * @param {string[]} to
   */
  #step(from, to) {
    const text = from.pop();
    if (text === undefined) return;
    to.push(JSON.stringify(this.list));
    this.list = JSON.parse(text);
  }

  /**
   * A name that no shape has.
   * @param {string} word
   */
  free(word) {
    let n = 1;
    while (this.list.some((one) => one.name === `${word}${n}`)) n += 1;
    return `${word}${n}`;
  }
}
