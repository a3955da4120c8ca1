// The drawing over a camera's picture: shapes, their points, and what mouse, finger and keys do to them.

import { make, say, svg } from "./dom.js";
import { SNAP, inSide, moved, snapped, usedOn } from "./shapes.js";
import { t } from "./strings.js";

/** @typedef {import("./shapes.js").Point} Point */
/** @typedef {import("./shapes.js").Shape} Shape */
/** @typedef {import("./shapes.js").Shapes} Shapes */
/** @typedef {{ part: string, n: number, from: Point, points: Point[], scale: number, moved?: boolean }} Drag what the pointer holds, since it went down */

/**
 * The part that an event is at.
 * @param {Event} event
 * @param {string} [parts] a selector
 */
const partAt = (event, parts = "[data-part]") => /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest?.(parts));

const DOUBLE_MS = 400;
/** @type {Record<string, Point>} */
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Board {
  /** @param {() => void} changed called after each change */
  constructor(changed) {
    this.changed = changed;
    /** @type {Shapes | null} */
    this.shapes = null;
    this.kind = "area";
    this.hides = false;
    this.source = ""; // the camera of the picture
    /** @type {string[]} */
    this.own = []; // the sources of a new shape; none for all
    /** @type {Point} */
    this.size = [16, 9];
    this.selected = -1;
    /** @type {Point[] | null} */
    this.drawing = null; // the points of a shape that is being drawn
    /** @type {Point | null} */
    this.cursor = null;
    /** @type {Drag | null} */
    this.drag = null;
    this.pressed = { n: -1, at: 0 }; // the point that was pressed last, and when
    this.svg = svg("svg", { tabindex: "-1", role: "group" });
    this.image = make("img", { alt: "" });
    this.hint = make("span", { class: "hint" });
    this.element = make("div", { class: "board" }, this.image, this.hint, this.svg);
    /** @type {[string, (event: any) => void][]} */
    const listeners = [["pointerdown", this.down], ["pointermove", this.move], ["pointerup", this.up], ["pointercancel", this.up],
      ["dblclick", this.double], ["keydown", this.key], ["focusin", this.focus]];
    for (const [name, call] of listeners) this.svg.addEventListener(name, call.bind(this));
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  /** Pixels of the frame that one pixel on the screen stands for. */
  get scale() {
    return this.size[0] / (this.svg.clientWidth || this.size[0]);
  }

  get least() {
    return this.kind === "area" ? 3 : 2;
  }

  /** @param {Point} size */
  resize(size) {
    this.size = size;
    this.draw();
  }

  /** The shapes, once there are some to draw. */
  get known() {
    return /** @type {Shapes} */ (this.shapes);
  }

  /** @param {number} n */
  name(n) {
    return this.known.list[n].name || t("zones.unnamed");
  }

  /**
   * @param {PointerEvent} event
   * @returns {Point}
   */
  #at(event) {
    const box = this.svg.getBoundingClientRect();
    const point = [((event.clientX - box.left) / box.width) * this.size[0], ((event.clientY - box.top) / box.height) * this.size[1]];
    return snapped(/** @type {Point} */ (point), this.size, SNAP * this.scale);
  }

  // ------------------------------------------------------------------------------------------------- drawing a shape

  /** @param {Point[]} [points] those of a drawing that goes on */
  begin(points = []) {
    this.drawing = points;
    this.selected = -1;
    this.cursor = [this.size[0] / 2, this.size[1] / 2];
    this.draw();
    this.element.scrollIntoView({ block: "nearest", behavior: /** @type {any} */ ("instant") });
    this.svg.focus({ preventScroll: true });
    say(t(this.kind === "area" ? "zones.help_area" : "zones.help_line"));
  }

  cancel() {
    this.drawing = null;
    this.draw();
    this.changed();
  }

  finish() {
    const points = (this.drawing ?? []).filter((one, n, all) => n === 0 || Math.hypot(one[0] - all[n - 1][0], one[1] - all[n - 1][1]) > 1e-6);
    if (points.length < this.least) {
      say(t(this.kind === "area" ? "zones.fewest_area" : "zones.fewest_line"));
      return;
    }
    this.drawing = null;
    const { known } = this;
    known.begin();
    const word = this.hides ? "mask" : this.kind;
    if (known.list.length === 1 && !known.list[0].name) known.list[0].name = known.free(word);
    known.list.push({ name: known.free(word), points, sources: [...this.own] });
    this.select(known.list.length - 1);
    this.#focus(".selected");
  }

  /** @param {Point} point */
  #set(point) {
    const drawing = /** @type {Point[]} */ (this.drawing), first = drawing[0];
    if (drawing.length >= 3 && this.kind === "area" && Math.hypot(point[0] - first[0], point[1] - first[1]) < SNAP * this.scale) {
      this.finish();
      return;
    }
    drawing.push(point);
    this.draw();
  }

  // -------------------------------------------------------------------------------------------------------- changing

  /** @param {number} n */
  select(n) {
    this.selected = n;
    this.draw();
    this.changed();
  }

  /**
   * Changes shapes in one step.
   * @param {() => void} call
   */
  change(call) {
    this.known.begin();
    call();
    this.known.settle();
    this.draw();
    this.changed();
  }

  /** @param {number} n */
  removePoint(n) {
    const { points } = this.known.list[this.selected];
    if (points.length <= this.least) {
      say(t(this.kind === "area" ? "zones.fewest_area" : "zones.fewest_line"));
      return;
    }
    this.change(() => points.splice(n, 1));
    this.#focusPoint(Math.min(n, points.length - 1));
  }

  /** @param {number} after */
  insertPoint(after) {
    const { points } = this.known.list[this.selected];
    const [a, b] = [points[after], points[(after + 1) % points.length]];
    this.change(() => points.splice(after + 1, 0, [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2]));
    this.#focusPoint(after + 1);
  }

  /** @param {number} n */
  #focusPoint(n) {
    this.#focus(`.point[data-n="${n}"]`);
  }

  /** @param {string} selector */
  #focus(selector) {
    /** @type {SVGElement | null} */ (this.svg.querySelector(selector))?.focus({ preventScroll: true });
  }

  // ---------------------------------------------------------------------------------------------------------- pointer

  /** @param {PointerEvent} event */
  down(event) {
    if (event.button !== 0 || !this.shapes) return;
    const point = this.#at(event);
    if (this.drawing) {
      event.preventDefault();
      this.svg.focus({ preventScroll: true });
      this.#set(point);
      return;
    }
    const target = partAt(event);
    if (!target) {
      this.select(-1);
      return;
    }
    event.preventDefault();
    const n = Number(target.dataset.n), part = target.dataset.part ?? "", now = performance.now();
    const again = part === "point" && n === this.pressed.n && now - this.pressed.at < DOUBLE_MS;
    this.pressed = { n: part === "point" ? n : -1, at: now };
    if (again) { // the browser sees no double click: the point is drawn again in between
      this.removePoint(n);
      return;
    }
    if (part === "shape") this.select(n);
    this.shapes.begin();
    const shape = this.shapes.list[this.selected];
    let at = n;
    if (part === "middle") shape.points.splice(at = n + 1, 0, point);
    const box = this.svg.getBoundingClientRect();
    this.drag = { part, n: at, from: [event.clientX, event.clientY], points: structuredClone(shape.points), scale: this.size[0] / box.width };
    this.svg.setPointerCapture(event.pointerId);
    this.draw();
    if (part === "shape") this.#focus(".selected");
    else this.#focusPoint(at);
  }

  /** @param {PointerEvent} event */
  move(event) {
    if (this.drawing) {
      this.cursor = this.#at(event);
      this.draw();
    }
    if (!this.drag) return;
    const { part, n, from, points, scale } = this.drag, shape = this.known.list[this.selected];
    if (part === "shape") {
      shape.points = moved(points, (event.clientX - from[0]) * scale, (event.clientY - from[1]) * scale, this.size);
    } else if (Math.hypot(event.clientX - from[0], event.clientY - from[1]) > 2 || part === "middle") {
      shape.points[n] = this.#at(event);
      this.drag.moved = true;
    }
    this.draw();
  }

  up() {
    if (!this.drag) return;
    if (this.drag.moved) this.pressed.n = -1;
    this.drag = null;
    this.known.settle();
    this.draw();
    this.changed();
  }

  /** @param {MouseEvent} event */
  double(event) {
    if (!this.drawing) return;
    event.preventDefault();
    this.finish();
  }

  // --------------------------------------------------------------------------------------------------------- keyboard

  /** @param {FocusEvent} event */
  focus(event) {
    const target = partAt(event, '[data-part="shape"]');
    if (target && Number(target.dataset.n) !== this.selected && !this.drag && !this.drawing) this.select(Number(target.dataset.n));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (!this.shapes || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = ARROWS[event.key]?.map((one) => one * (event.shiftKey ? 10 : 1));
    if (this.drawing) return this.#keyDrawing(event, step);
    const target = partAt(event);
    if (!target) return;
    const n = Number(target.dataset.n), point = target.dataset.part === "point";
    const shape = this.shapes.list[this.selected];
    if (step && point) {
      this.change(() => { shape.points[n] = snapped([shape.points[n][0] + step[0], shape.points[n][1] + step[1]], this.size, 0); });
      const [x, y] = shape.points[n].map(Math.round);
      say(t("zones.moved", { x, y }));
    } else if (step) {
      this.change(() => { shape.points = moved(shape.points, step[0], step[1], this.size); });
    } else if (event.key === "Delete" || event.key === "Backspace") {
      if (point) this.removePoint(n);
      else this.change(() => { this.known.list.splice(n, 1); this.selected = -1; });
    } else if (event.key === "Insert" && point) {
      this.insertPoint(n);
    } else {
      return;
    }
    event.preventDefault();
  }

  /**
   * @param {KeyboardEvent} event
   * @param {number[] | undefined} step
   */
  #keyDrawing(event, step) {
    const cursor = this.cursor ?? /** @type {Point} */ ([0, 0]);
    if (event.key === "Enter") this.finish();
    else if (event.key === "Escape") this.cancel();
    else if (event.key === "Backspace") this.drawing?.pop();
    else if (event.key === " ") this.#set([...cursor]);
    else if (step) this.cursor = snapped([cursor[0] + step[0], cursor[1] + step[1]], this.size, 0);
    else return;
    event.preventDefault();
    this.draw();
  }

  // ---------------------------------------------------------------------------------------------------------- picture

  draw() {
    const active = /** @type {HTMLElement | null} */ (document.activeElement), held = active && this.svg.contains(active) ? active.dataset : null;
    const { part, n } = held ?? {};
    this.svg.setAttribute("viewBox", `0 0 ${this.size[0]} ${this.size[1]}`);
    this.svg.classList.toggle("drawing", this.drawing !== null);
    this.svg.setAttribute("tabindex", this.drawing ? "0" : "-1");
    const groups = (this.shapes?.list ?? []).flatMap((shape, at) => (usedOn(shape, this.source) ? [this.#group(shape, at)] : []));
    this.svg.replaceChildren(...groups, ...(this.drawing ? this.#rubber() : []));
    if (part) this.#focus(`[data-part="${part}"][data-n="${n}"]`);
  }

  /**
   * @param {Shape} shape
   * @param {number} n
   */
  #group(shape, n) {
    const { scale } = this, selected = n === this.selected, area = this.kind === "area";
    const points = shape.points.map((one) => one.join(",")).join(" ");
    const label = t(`zones.shape_${this.kind}`, { name: this.name(n), n: shape.points.length });
    const group = svg("g", { class: `group ${selected ? "selected" : ""}`, tabindex: "0", role: "button", "aria-label": label, "data-part": "shape", "data-n": n });
    const tag = area ? "polygon" : "polyline";
    group.append(svg(tag, { class: "halo", points }));
    if (!area) group.append(svg(tag, { class: "grip", points }));
    group.append(svg(tag, { class: `shape ${area ? "" : "line"} ${this.hides ? "mask" : ""}`, points }));
    if (!area) group.append(this.#way(shape));
    const [x, y] = shape.points.reduce((a, b) => (b[1] < a[1] ? b : a));
    const words = svg("text", { class: "name", x: Math.min(x + 6 * scale, this.size[0] - 60 * scale), y: Math.max(y - 8 * scale, 16 * scale), "font-size": 14 * scale });
    words.textContent = shape.name;
    group.append(words);
    if (!selected) return group;
    const whole = svg("g", {});
    whole.append(group);
    shape.points.forEach((one, at) => {
      const next = shape.points[(at + 1) % shape.points.length];
      if (area || at + 1 < shape.points.length) {
        whole.append(this.#dot("middle", at, [(one[0] + next[0]) / 2, (one[1] + next[1]) / 2], 4));
      }
    });
    shape.points.forEach((one, at) => whole.append(this.#dot("point", at, one, 6.5)));
    return whole;
  }

  /**
   * @param {string} part
   * @param {number} n
   * @param {Point} at
   * @param {number} radius
   */
  #dot(part, n, [x, y], radius) {
    const { scale } = this;
    const made = svg("g", { class: part, "data-part": part, "data-n": n });
    if (part === "point") {
      made.setAttribute("tabindex", "0");
      made.setAttribute("role", "button");
      made.setAttribute("aria-label", t("zones.point", { n: n + 1, name: this.name(this.selected), x: Math.round(x), y: Math.round(y) }));
    }
    made.append(svg("circle", { cx: x, cy: y, r: radius * scale }), svg("circle", { class: "reach", cx: x, cy: y, r: 12 * scale }));
    return made;
  }

  /**
   * The arrow to the side that counts as in, or at the end of a direction.
   * @param {Shape} shape
   */
  #way(shape) {
    const { scale } = this, [before, end] = shape.points.slice(-2);
    const length = Math.hypot(end[0] - before[0], end[1] - before[1]) || 1;
    const { at, to } = this.kind === "line" ? inSide(shape.points) : { at: end, to: [(end[0] - before[0]) / length, (end[1] - before[1]) / length] };
    const place = (/** @type {number} */ ahead, /** @type {number} */ aside) => `${at[0] + (to[0] * ahead - to[1] * aside) * scale},${at[1] + (to[1] * ahead + to[0] * aside) * scale}`;
    const made = svg("g", { class: "in" });
    const back = this.kind === "line" ? 0 : -16;
    const stem = this.kind === "line" ? [place(18, -3), place(2, -3), place(2, 3), place(18, 3)] : [];
    made.append(svg("polygon", { class: "way", points: [place(34 + back, 0), place(18 + back, 10), ...stem.slice(3), ...stem.slice(2, 3), ...stem.slice(1, 2), ...stem.slice(0, 1), place(18 + back, -10)].join(" ") }));
    if (this.kind === "line") {
      const words = svg("text", { class: "name", x: at[0] + to[0] * 46 * scale - 6 * scale, y: at[1] + to[1] * 46 * scale + 5 * scale, "font-size": 13 * scale });
      words.textContent = t("zones.in");
      made.append(words);
    }
    return made;
  }

  #rubber() {
    const { scale } = this, [x, y] = this.cursor ?? [0, 0], drawing = /** @type {Point[]} */ (this.drawing);
    const points = [...drawing, ...(this.cursor ? [this.cursor] : [])].map((one) => one.join(",")).join(" ");
    const near = 9 * scale;
    return [
      svg("polyline", { class: "halo", points }), svg("polyline", { class: "shape line", points }),
      ...drawing.map((one) => svg("circle", { class: "way", cx: one[0], cy: one[1], r: 5 * scale })),
      svg("path", { class: "cross", d: `M${x - near} ${y}H${x + near}M${x} ${y - near}V${y + near}` }),
    ];
  }
}
