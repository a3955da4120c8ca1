// Draws the areas and lines of stages over a camera's picture, and writes them into the YAML.

import { call, get, path } from "../api.js";
import { Board } from "../board.js";
import { confirmChanges, follow, show } from "../changes.js";
import { ago, make, text } from "../dom.js";
import { draftOf, keepDraft } from "../drafts.js";
import { nameOf } from "../names.js";
import { askToken, lost, onSession, signedIn, who } from "../session.js";
import { Shapes, fromApi, toApi, usedOn } from "../shapes.js";
import { t } from "../strings.js";

const EVERY_MS = 400, SLOW_MS = 1500;

/**
 * @param {HTMLElement} root
 * @param {URLSearchParams} params `source` and `stage` may name what is shown first
 */
export function open(root, params) {
  const view = new Zones(params);
  root.append(view.element);
  const forget = onSession(() => view.session());
  view.session();
  return { update: (/** @type {import("./index.js").State} */ state) => view.update(state),
    close() {
      forget();
      view.close();
    } };
}

/** @param {import("../types").ShapeOptionView} option */
const keyOf = ({ stage, option }) => `${stage} ${option}`;

class Zones {
  /** @param {URLSearchParams} params */
  constructor(params) {
    this.wanted = { source: params.get("source"), stage: params.get("stage") };
    this.board = new Board(() => this.changed());
    this.closed = false;
    this.listed = false; // whether the cameras are known
    /** @type {import("../types").ShapesView | null} */
    this.loaded = null; // the answer of /shapes
    /** @type {any} */
    this.draftToRestore = null; // from `keep`
    this.name = ""; // the file's
    /** @type {Map<string, { shapes: Shapes, size: import("../shapes.js").Point }>} */
    this.drafts = new Map(); // the shapes of each option and the size that they are for, by stage and option
    /** @type {import("../types").SourceView[]} */
    this.sources = [];
    this.camera = make("select", { id: "zones-camera", onchange: () => this.show() });
    this.option = make("select", { id: "zones-option", onchange: () => this.show() });
    this.list = make("ul", { class: "shapes" });
    this.error = make("p", { class: "error", role: "alert" });
    this.state = make("p", { class: "state" });
    this.help = make("p", { class: "help" });
    this.again = make("button", { type: "button", hidden: true, onclick: () => this.load() }, t("zones.reload"));
    /** @type {(name: string, call: () => void, options?: Record<string, string>) => HTMLButtonElement} */
    const button = (name, call, options = {}) => make("button", { type: "button", onclick: call, ...options }, t(`zones.${name}`));
    this.add = make("button", { type: "button", onclick: () => this.draw() });
    this.finish = button("finish", () => { this.board.finish(); this.changed(); });
    this.cancel = button("cancel", () => this.board.cancel());
    this.undo = button("undo", () => this.step("undo"));
    this.redo = button("redo", () => this.step("redo"));
    this.reset = button("reset", () => this.discard());
    this.apply = button("apply", () => this.save(), { class: "primary" });
    this.empty = make("div", { class: "empty", hidden: true });
    this.panel = make("div", { class: "panel" },
      make("label", { for: "zones-camera" }, t("zones.camera")), this.camera,
      make("label", { for: "zones-option" }, t("zones.option")), this.option, this.help,
      make("h3", {}, t("zones.shapes")), this.list,
      make("div", { class: "tools" }, this.add, this.finish, this.cancel),
      make("div", { class: "tools" }, this.undo, this.redo, this.reset),
      make("div", { class: "tools" }, this.apply, this.again), this.error, this.state);
    this.element = make("section", { class: "zones", "aria-label": t("zones.title") },
      make("div", { class: "title" }, make("h2", {}, t("zones.title"))), this.empty, this.board.element, this.panel);
    this.keys = (/** @type {KeyboardEvent} */ event) => this.key(event); // a button that is disabled loses the focus, so not on the element
    document.addEventListener("keydown", this.keys);
    this.board.element.hidden = this.panel.hidden = true;
    this.picture();
  }

  close() {
    this.keep();
    this.closed = true;
    document.removeEventListener("keydown", this.keys);
    if (this.board.image.src) URL.revokeObjectURL(this.board.image.src);
  }

  // Keeps the shapes, with the file that they were made from and a drawing that is not finished.
  keep() {
    if (!this.loaded || this.panel.hidden || this.closed) return;
    const { drafts, board: { drawing }, loaded: { hash } } = this;
    const changed = drawing?.length || [...drafts.values()].some(({ shapes }) => shapes.changed);
    keepDraft("zones", who.name, changed ? { drafts, drawing, hash, camera: this.camera.value, option: this.option.value } : null);
  }

  session() {
    this.drafts = new Map();
    this.draftToRestore = draftOf("zones", who.name);
    if (signedIn) this.load();
    else this.nothing(t("zones.sign_in"), make("button", { type: "button", class: "primary", onclick: askToken }, t("config.sign_in_button")));
  }

  /**
   * @param {string} words
   * @param {...HTMLElement} more
   */
  nothing(words, ...more) {
    this.empty.replaceChildren(make("p", {}, words), ...more);
    this.empty.hidden = !words;
    this.board.element.hidden = this.panel.hidden = Boolean(words);
  }

  /** @param {(key: string) => boolean} [stays] tells which unsaved shapes stay, by stage and option; by default all */
  async load(stays = () => true) {
    /** @type {import("../types").ShapesView} */
    let loaded;
    try {
      loaded = this.loaded = await get("/api/v1/shapes");
      this.name = (await get("/api/v1/config")).name;
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) return lost();
      return this.nothing(trouble.message, make("p", {}, make("a", { href: "#/config" }, t("zones.edit_config"))));
    }
    if (this.closed) return;
    for (const key of this.drafts.keys()) if (!stays(key)) this.drafts.delete(key);
    this.again.hidden = true;
    text(this.error, "");
    const { options } = loaded;
    if (!options.length) return this.nothing(t("zones.none"), make("p", {}, make("a", { href: "#/config" }, t("zones.edit_config"))));
    const before = this.option.value;
    this.option.replaceChildren(...options.map((one, n) => make("option", { value: n }, t(`zones.option_${one.hides ? "mask" : one.kind}`, { stage: one.stage, option: one.option }))));
    const drawn = options.findIndex((one) => Object.keys(one.shapes).length);
    const wanted = options.findIndex((one) => one.stage === this.wanted.stage);
    this.option.value = before && options[Number(before)] ? before : String(Math.max(0, wanted >= 0 ? wanted : drawn));
    const draft = this.draftToRestore;
    this.draftToRestore = null;
    if (draft) this.restore(draft);
    this.cameras();
    this.show();
    if (draft?.drawing) this.board.begin(draft.drawing);
    if (draft && draft.hash !== loaded.hash) {
      loaded.hash = draft.hash; // saving is refused until the user has read the file again
      this.again.hidden = false;
      text(this.error, t("zones.changed_on_disk"));
    }
    if (this.listed) this.nothing(""); // before, another size of the picture could end a drawing
    this.changed();
  }

  /** @param {any} draft from `keep` */
  restore({ drafts, camera, option }) {
    this.drafts = drafts;
    this.wanted.source ??= camera;
    if (!this.wanted.stage && this.loaded?.options[Number(option)]) this.option.value = option;
  }

  /** @param {import("./index.js").State} state */
  update({ sources }) {
    this.sources = sources;
    this.cameras();
    this.age();
    if (this.listed) return;
    this.listed = true;
    if (this.loaded?.options.length) this.nothing("");
  }

  // Dims the picture and says how old it is while no new one comes.
  age() {
    const source = this.sources.find(({ id }) => id === this.camera.value), { hint, image, element } = this.board;
    const still_s = source?.state === "running" ? source.quiet_s ?? 0 : 0;
    element.classList.toggle("stale", still_s > 0);
    hint.hidden = !image.hidden && !still_s;
    text(hint, still_s ? t("live.still", { time: ago(still_s) }) : t("zones.waiting", { source: nameOf(this.camera.value) }));
  }

  cameras() {
    const ids = this.sources.map((one) => one.id);
    const known = [...this.camera.options].map((one) => one.value);
    if (ids.join("\n") === known.join("\n")) return;
    const chosen = this.camera.value;
    const before = chosen || this.wanted.source || (this.sources.find((one) => one.state === "running")?.id ?? "");
    this.camera.replaceChildren(...ids.map((id) => make("option", { value: id }, nameOf(id))));
    if (ids.includes(before)) this.camera.value = before;
    if (this.loaded && this.camera.value !== chosen) this.show();
  }

  get current() {
    return /** @type {import("../types").ShapesView} */ (this.loaded).options[Number(this.option.value)];
  }

  /** @returns {[number, number]} width and height in pixels */
  get size() {
    const { naturalWidth, naturalHeight } = this.board.image;
    return this.loaded?.sizes[this.camera.value] ?? (naturalWidth ? [naturalWidth, naturalHeight] : [640, 360]);
  }

  get draft() {
    const { current, size } = this, key = keyOf(current);
    let draft = this.drafts.get(key);
    if (!draft) this.drafts.set(key, draft = { shapes: new Shapes(fromApi(current.shapes, current.units, size, current.sources)), size });
    if (current.units === "share" && String(draft.size) !== String(size)) {
      draft.shapes.scale(draft.size, size);
      draft.size = size;
    }
    return draft.shapes;
  }

  show() {
    const { current, board } = this;
    board.drawing = null;
    board.kind = current.kind;
    board.hides = current.hides;
    board.source = this.camera.value;
    board.own = current.by_source && this.sources.length > 1 ? [board.source] : [];
    board.shapes = this.draft;
    board.selected = -1;
    board.resize(this.size);
    text(this.error, current.fixed ? t("zones.read_only", { why: current.fixed }) : "");
    text(this.add, t(`zones.add_${current.hides ? "mask" : current.kind}`));
    board.image.hidden = true;
    this.age();
    this.changed();
  }

  // ---------------------------------------------------------------------------------------------------------- picture

  async picture() {
    while (!this.closed) {
      let wait = EVERY_MS;
      const source = this.camera.value;
      if (signedIn && source && this.loaded && !document.hidden && !this.board.element.hidden) {
        try {
          const url = URL.createObjectURL(await get(path(source, "/snapshot.jpg")));
          const { image } = this.board, old = image.src;
          if (source !== this.camera.value || this.closed) URL.revokeObjectURL(url);
          else {
            image.src = url;
            await image.decode();
            if (old) URL.revokeObjectURL(old);
            if (image.hidden) await this.seen();
            image.hidden = false;
            this.age();
          }
        } catch (/** @type {any} */ trouble) {
          if (trouble.status === 401) lost();
          wait = SLOW_MS;
        }
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  // The first picture of a camera: its size may not have been known.
  async seen() {
    if (this.loaded && !this.loaded.sizes[this.camera.value]) {
      const { sizes } = await get("/api/v1/shapes");
      this.loaded.sizes = sizes;
      this.board.shapes = this.draft;
      this.board.resize(this.size);
      this.changed();
    }
  }

  // ----------------------------------------------------------------------------------------------------------- changes

  draw() {
    this.board.begin();
    this.changed();
  }

  /** @param {"undo" | "redo"} word */
  step(word) {
    this.draft[word]();
    this.board.selected = Math.min(this.board.selected, this.draft.list.length - 1);
    this.board.draw();
    this.changed();
  }

  discard() {
    const { draft } = this;
    this.board.change(() => { draft.list = JSON.parse(draft.first); });
    this.board.select(-1);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const typing = /** @type {Element} */ (event.target).closest("input, select, textarea");
    if (!(event.ctrlKey || event.metaKey) || typing || !this.loaded || document.querySelector("dialog[open]")) return;
    const key = event.key.toLowerCase();
    if (key === "z" || key === "y") {
      event.preventDefault();
      this.step(key === "y" || event.shiftKey ? "redo" : "undo");
    }
  }

  changed() {
    if (!this.loaded) return;
    const { board, current, draft } = this, drawing = board.drawing !== null, fixed = Boolean(current.fixed);
    this.add.hidden = drawing || (!current.named && draft.list.length > 0);
    this.add.disabled = fixed;
    this.finish.hidden = this.cancel.hidden = !drawing;
    this.undo.disabled = drawing || !draft.past.length;
    this.redo.disabled = drawing || !draft.future.length;
    this.reset.disabled = drawing || !draft.changed;
    this.apply.disabled = drawing || !draft.changed || fixed;
    const words = t(drawing ? (board.kind === "area" ? "zones.help_area" : "zones.help_line") : "zones.help_edit");
    const others = draft.list.filter((shape) => !usedOn(shape, board.source)).length;
    const about = others ? t("zones.other_cameras", { n: others }) : this.sources.length > 1 && !current.by_source ? t("zones.all_cameras") : "";
    text(this.help, `${words} ${drawing ? t("zones.help_keys") : about}`);
    board.svg.setAttribute("aria-label", t("zones.picture", { source: nameOf(this.camera.value), n: draft.list.length - others }));
    this.entries();
    this.keep();
  }

  // The list of shapes; fields keep the focus while their text changes.
  entries() {
    const { draft, board } = this;
    while (this.list.children.length > draft.list.length) this.list.lastChild?.remove();
    while (this.list.children.length < draft.list.length) this.list.append(this.entry(this.list.children.length));
    draft.list.forEach((shape, n) => {
      const item = /** @type {HTMLElement} */ (this.list.children[n]);
      item.hidden = !usedOn(shape, board.source);
      this.where(shape, /** @type {HTMLSelectElement} */ (item.querySelector("select")));
      const name = /** @type {HTMLInputElement} */ (item.querySelector("input"));
      const [turn, remove] = item.querySelectorAll("button");
      const word = shape.name || t("zones.unnamed");
      item.classList.toggle("selected", n === board.selected);
      if (name.value !== shape.name && document.activeElement !== name) name.value = shape.name;
      name.disabled = !this.current.named;
      turn.hidden = board.kind === "area";
      text(turn, t(board.kind === "line" ? "zones.turn_short" : "zones.turn_arrow_short"));
      turn.setAttribute("aria-label", t(board.kind === "line" ? "zones.turn" : "zones.turn_arrow", { name: word }));
      remove.setAttribute("aria-label", t("zones.remove", { name: word }));
    });
  }

  /**
   * The choice of the cameras of a shape.
   * @param {import("../shapes.js").Shape} shape
   * @param {HTMLSelectElement} select
   */
  where(shape, select) {
    const now = shape.sources.join(", "), own = this.board.source;
    select.hidden = !this.current.by_source || (this.sources.length < 2 && !now);
    select.setAttribute("aria-label", t("zones.cameras_of", { name: shape.name || t("zones.unnamed") }));
    const choices = [...new Set(["", own, now])];
    if (choices.join("\n") !== [...select.options].map((one) => one.value).join("\n")) {
      select.replaceChildren(...choices.map((value) => make("option", { value }, value ? t("zones.only", { sources: value }) : t("zones.every"))));
    }
    select.value = now;
  }

  /** @param {number} n */
  entry(n) {
    const { board } = this;
    return make("li", { onclick: () => board.selected !== n && n < this.draft.list.length && board.select(n) },
      make("input", {
        "aria-label": t("zones.name", { n: n + 1 }), placeholder: t("zones.no_name"), maxlength: "64", autocomplete: "off", spellcheck: "false",
        onfocus: () => board.select(n), onchange: (event) => this.rename(n, event.target),
      }),
      make("select", { onchange: (event) => board.change(() => {
        this.draft.list[n].sources = event.target.value.split(", ").filter(Boolean);
      }) }),
      make("button", { type: "button", onclick: () => board.change(() => this.draft.list[n].points.reverse()) }),
      make("button", {
        type: "button", onclick: (event) => {
          event.stopPropagation();
          board.selected = -1;
          board.change(() => this.draft.list.splice(n, 1));
        },
      }, t("zones.remove_short")));
  }

  /**
   * @param {number} n
   * @param {HTMLInputElement} field
   */
  rename(n, field) {
    const name = field.value.trim();
    const taken = this.draft.list.some((one, other) => other !== n && one.name === name);
    if (taken || (!name && this.draft.list.length > 1)) {
      field.value = this.draft.list[n].name;
      return;
    }
    this.board.change(() => { this.draft.list[n].name = name; });
  }

  // ------------------------------------------------------------------------------------------------------------ saving

  async save() {
    if (!signedIn) return askToken();
    const { current, draft } = this;
    const body = {
      option: current.option, shapes: toApi(draft.list, current.units, this.size, current.shapes), units: current.units, hash: this.loaded?.hash,
      ...(current.by_source ? { sources: Object.fromEntries(draft.list.filter((one) => one.sources.length).map((one) => [one.name, one.sources])) } : {}),
    };
    const send = (/** @type {boolean} */ dryRun) => call("POST", `/api/v1/stages/${encodeURIComponent(current.stage)}/shapes`, { ...body, dry_run: dryRun });
    text(this.error, "");
    show(this.state, "");
    try {
      const saved = await confirmChanges(this.name, await send(true), async () => {
        try {
          return await send(false);
        } catch (/** @type {any} */ trouble) {
          if (trouble.status === 409) this.again.hidden = false;
          throw trouble;
        }
      });
      if (!saved) return;
      await this.load((key) => key !== keyOf(current));
      await follow(this.name, saved.hash, this.state);
    } catch (/** @type {any} */ trouble) {
      if (trouble.status === 401) lost();
      if (trouble.status === 409) this.again.hidden = false;
      text(this.error, trouble.message);
    }
  }
}
