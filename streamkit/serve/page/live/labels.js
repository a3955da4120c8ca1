// Where labels are drawn: none hides another one, and none is much larger than its object. A label is shortened where the
// object is small, and left out where there is no room; it stays where it was from frame to frame.

const WIDE = 1.3; // how much wider than its object a label may be; the shortest form may be twice as wide
const TALL = 0.5; // how high a label may be, as a share of its object's height
const UPGRADE = 0.8, KEEP = 1.25; // of the limit: a longer form must fit well, and one that is shown may fit worse

/** @typedef {{ left: number, top: number, wide: number, high: number }} Area in pixels of the canvas */
/** @typedef {{ key: string, box: number[], forms: string[], ground: string }} Labeled `box` in pixels of the canvas; `forms` from the longest to the shortest; `key` is empty without a track */
/** @typedef {Area & { text: string, ground: string }} Label */

/**
 * @param {Area} a
 * @param {Area} b
 */
const meet = (a, b) => a.left < b.left + b.wide && b.left < a.left + a.wide && a.top < b.top + b.high && b.top < a.top + a.high;

/**
 * The places of a label around its object, the best first: above it, below it, and inside of a large one.
 * @param {number[]} box
 * @param {number} wide
 * @param {number} high
 * @param {{ width: number, height: number }} canvas
 * @returns {Area[]}
 */
function places([x1, y1, x2, y2], wide, high, canvas) {
  const inside = y2 - y1 > 4 * high ? [[x1, y1]] : [];
  const corners = [[x1, y1 - high], [x2 - wide, y1 - high], [x1, y2], [x2 - wide, y2], ...inside];
  return corners.map(([left, top]) => ({ left: Math.max(0, Math.min(left, canvas.width - wide)), top, wide, high }))
    .filter(({ top }) => top >= 0 && top + high <= canvas.height);
}

export class Labels {
  constructor() {
    /** @type {Map<string, { form: number, place: number }>} */
    this.shown = new Map(); // by key
  }

  /**
   * The labels of a frame.
   * @param {Labeled[]} objects
   * @param {Area[]} taken by other texts
   * @param {{ width: number, height: number }} canvas
   * @param {number} high the height of a label
   * @param {(text: string) => number} widthOf
   * @returns {Label[]}
   */
  place(objects, taken, canvas, high, widthOf) {
    const before = this.shown;
    this.shown = new Map();
    const size = (/** @type {Labeled} */ { box: [x1, y1, x2, y2] }) => (x2 - x1) * (y2 - y1);
    /** @type {Label[]} */
    const labels = [];
    for (const object of [...objects].sort((a, b) => size(b) - size(a))) {
      const others = objects.filter((other) => other !== object)
        .map(({ box: [x1, y1, x2, y2] }) => ({ left: x1, top: y1, wide: x2 - x1, high: y2 - y1 }));
      const choice = this.choose(object, before.get(object.key), [...taken, ...labels], others, canvas, high, widthOf);
      if (!choice) continue;
      labels.push({ ...choice.area, text: object.forms[choice.form], ground: object.ground });
      if (object.key) this.shown.set(object.key, { form: choice.form, place: choice.place });
    }
    return labels;
  }

  /**
   * @param {Labeled} object
   * @param {{ form: number, place: number } | undefined} before what was shown of it on the last frame
   * @param {Area[]} taken
   * @param {Area[]} others the areas of the other objects
   * @param {{ width: number, height: number }} canvas
   * @param {number} high
   * @param {(text: string) => number} widthOf
   */
  choose({ box, forms }, before, taken, others, canvas, high, widthOf) {
    const [x1, y1, x2, y2] = box, shortest = forms.length - 1;
    if (high > (y2 - y1) * TALL) return null;
    for (let form = 0; form <= shortest; form += 1) {
      const limit = (x2 - x1) * (form === shortest ? 2 : WIDE), wide = widthOf(forms[form]);
      const slack = before === undefined ? 1 : form < before.form ? UPGRADE : form === before.form ? KEEP : 1;
      if (wide > limit * slack) continue;
      const all = places(box, wide, high, canvas).map((area, place) => ({ area, place, form }));
      const free = all.filter(({ area }) => !taken.some((other) => meet(area, other)));
      const clear = form === shortest ? free : free.filter(({ area }) => !others.some((other) => meet(area, other)));
      const best = clear.find(({ place }) => form === before?.form && place === before.place) ?? clear[0];
      if (best) return best;
    }
    return null;
  }
}
