// @ts-nocheck
// The pipeline's graph, and a form for each stage with settings that can be changed while it runs.

import { call } from "./api.js";
import { $, make, number, say, svg, text } from "./dom.js";
import { askToken, lost, signedIn } from "./session.js";

const WIDE = 168, HIGH = 58, ACROSS = 44, DOWN = 18;

let drawn = "";
const labels = new Map();

function layers(stages) {
  const depth = new Map([["decode", 0]]);
  const rows = [[{ id: "decode", kind: "source", where: "", inputs: [], type: "decode" }]];
  for (const stage of stages) {
    const at = 1 + Math.max(...stage.inputs.map((id) => depth.get(id) ?? 0));
    depth.set(stage.id, at);
    (rows[at] ??= []).push(stage);
  }
  return rows;
}

function draw(stages) {
  const rows = layers(stages);
  const tallest = Math.max(...rows.map((row) => row.length));
  const width = rows.length * (WIDE + ACROSS) - ACROSS + 4, height = tallest * (HIGH + DOWN) - DOWN + 4;
  const places = new Map();
  rows.forEach((row, x) => row.forEach((stage, y) => {
    const top = 2 + (height - 4 - row.length * (HIGH + DOWN) + DOWN) / 2 + y * (HIGH + DOWN);
    places.set(stage.id, [2 + x * (WIDE + ACROSS), top]);
  }));
  const told = `From decode: ${stages.map((stage) => `${stage.id} reads from ${stage.inputs.join(" and ")}`).join("; ")}`;
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told },
    svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      svg("path", { d: "M0 0 8 4 0 8z" }))));
  for (const stage of rows.flat()) {
    for (const input of stage.inputs) {
      const [x0, y0] = places.get(input) ?? places.get("decode"), [x1, y1] = places.get(stage.id);
      const from = x0 + WIDE, a = y0 + HIGH / 2, b = y1 + HIGH / 2, middle = (from + x1) / 2;
      drawing.append(svg("path", { d: `M${from} ${a} C${middle} ${a} ${middle} ${b} ${x1 - 1} ${b}`, "marker-end": "url(#tip)" }));
    }
  }
  labels.clear();
  for (const stage of rows.flat()) {
    const [x, y] = places.get(stage.id);
    const group = svg("g", { class: `${stage.kind} ${stage.where.startsWith("cuda") ? "device" : ""}`, transform: `translate(${x} ${y})` });
    const title = svg("text", { x: 10, y: 22 }), small = svg("text", { x: 10, y: 40, class: "small" });
    title.textContent = stage.id.length > 20 ? `${stage.id.slice(0, 19)}…` : stage.id;
    const hover = svg("title");
    hover.textContent = [stage.id, ...(stage.crossings ?? [])].join("\n");
    group.append(svg("rect", { width: WIDE, height: HIGH, rx: 9 }), title, small, hover);
    labels.set(stage.id, small);
    drawing.append(group);
  }
  $("graph").replaceChildren(drawing);
}

export function showStages(stages) {
  const shape = JSON.stringify(stages.map((stage) => [stage.id, stage.inputs, stage.where]));
  if (shape !== drawn) {
    drawn = shape;
    draw(stages);
    forms(stages);
  }
  const decode = labels.get("decode");
  if (decode) text(decode, "frames of all cameras");
  for (const stage of stages) {
    const label = labels.get(stage.id);
    if (!label) continue;
    const cost = stage.us_per_frame === null ? "" : `${(stage.us_per_frame / 1000).toFixed(2)} ms`;
    const parts = [stage.where === "host" ? "" : stage.where, cost, stage.queue ? `${stage.queue} queued` : "",
      stage.failed ? `${number(stage.failed)} failed` : ""];
    text(label, parts.filter(Boolean).join(" · ") || stage.kind);
    label.classList.toggle("bad", stage.failed > 0);
  }
}

// ----------------------------------------------------------------------------------------------------------- settings

function field(stage, setting) {
  const id = `set-${stage.id}-${setting.name}`;
  const kinds = [setting.schema, ...(setting.schema.anyOf ?? [])];
  const numeric = kinds.some((one) => one.type === "number" || one.type === "integer");
  const bounds = kinds.find((one) => one.minimum !== undefined || one.maximum !== undefined) ?? {};
  const input = make("input", { id, name: setting.name, "aria-describedby": `${id}-help`, autocomplete: "off",
    placeholder: setting.value === null ? "not set" : null });
  const simple = numeric && typeof setting.value === "number";
  if (typeof setting.value === "boolean") {
    input.type = "checkbox";
    input.checked = setting.value;
  } else if (simple) {
    input.type = "number";
    input.step = kinds.some((one) => one.type === "integer") && !kinds.some((one) => one.type === "number") ? 1 : "any";
    if (bounds.minimum !== undefined) input.min = bounds.minimum;
    if (bounds.maximum !== undefined) input.max = bounds.maximum;
    input.value = setting.value;
  } else {
    input.value = setting.value === null ? "" : typeof setting.value === "string" ? setting.value : JSON.stringify(setting.value);
  }
  const read = () => {
    if (input.type === "checkbox") return input.checked;
    if (input.type === "number") return input.valueAsNumber;
    if (!input.value.trim()) return null;
    try {
      return JSON.parse(input.value);
    } catch {
      return input.value;
    }
  };
  const parts = [make("label", { for: id }, setting.name), input, make("p", { class: "help", id: `${id}-help` }, setting.help)];
  return { name: setting.name, read, element: make("div", {}, ...parts), first: JSON.stringify(read()) };
}

function forms(stages) {
  $("settings").replaceChildren(...stages.filter((stage) => stage.settings.length).map((stage) => {
    const fields = stage.settings.map((setting) => field(stage, setting));
    const error = make("p", { class: "error", role: "alert" });
    const save = async (event) => {
      event.preventDefault();
      if (!signedIn) return askToken();
      const values = Object.fromEntries(fields.filter((one) => JSON.stringify(one.read()) !== one.first).map((one) => [one.name, one.read()]));
      text(error, "");
      try {
        await call("PATCH", `/api/v1/stages/${encodeURIComponent(stage.id)}`, values);
        for (const one of fields) one.first = JSON.stringify(one.read());
        say(`${stage.id} was changed.`);
      } catch (trouble) {
        if (trouble.status === 401) lost();
        text(error, trouble.message);
      }
    };
    return make("details", {}, make("summary", {}, `Settings of ${stage.id}`),
      make("form", { onsubmit: save, "aria-label": `Settings of ${stage.id}` },
        make("div", { class: "fields" }, ...fields.map((one) => one.element)), error,
        make("div", { class: "buttons" }, make("button", { type: "submit" }, "Apply"))));
  }));
}
