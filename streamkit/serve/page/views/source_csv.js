// Imports sources from CSV: checks the lines, shows a problem for each, and adds all or the valid ones.

import { call } from "../api.js";
import { make, say, text } from "../dom.js";
import { modal } from "../modal.js";
import { t } from "../strings.js";

const EXAMPLE = "id,uri,timeout\ngate,rtsp://user:password@10.0.0.7/stream1,10s\nyard,rtsp://user:password@10.0.0.8/stream1,";
const ADD_MS = 60000;

export function importCsv() {
  const area = /** @type {HTMLTextAreaElement} */ (make("textarea", { id: "csv-text", rows: 7, spellcheck: "false", placeholder: EXAMPLE, oninput: () => result.replaceChildren() }));
  const file = /** @type {HTMLInputElement} */ (make("input", { id: "csv-file", type: "file", accept: ".csv,text/csv,text/plain", onchange: read }));
  const result = make("div", { class: "checked" });

  async function read() {
    const chosen = file.files?.[0];
    if (!chosen) return;
    area.value = await chosen.text();
    file.value = ""; // so that the same file, once mended, can be chosen again
    await check();
  }

  async function check() {
    if (!area.value.trim()) throw new Error(t("csv.empty"));
    shown(await call("POST", "/api/v1/sources.csv", { csv: area.value, mode: "check" }, ADD_MS));
  }

  /** @param {"all" | "valid"} mode */
  async function add(mode) {
    text(box.error, "");
    try {
      const found = await call("POST", "/api/v1/sources.csv", { csv: area.value, mode }, ADD_MS);
      if (found.added.length) {
        say(t("csv.added", { n: found.added.length }));
        box.close();
      } else shown(found);
    } catch (/** @type {any} */ trouble) {
      text(box.error, trouble.message);
    }
  }

  /** @param {{ lines: { line: number, id: string, address: string, problem: string }[] }} found */
  function shown({ lines }) {
    const good = lines.filter((one) => !one.problem).length;
    const names = ["line", "id", "address", "problem"];
    result.replaceChildren(
      make("p", { role: "status" }, t("csv.summary", { good, all: lines.length })),
      make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": t("csv.problem") },
        make("table", { class: "list" },
          make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, t(`csv.${name}`))))),
          make("tbody", {}, ...lines.map((one) => make("tr", { class: one.problem ? "bad" : "good" },
            make("td", { "data-label": t("csv.line") }, String(one.line)), make("td", { "data-label": t("csv.id") }, one.id),
            make("td", { "data-label": t("csv.address"), class: "address" }, one.address),
            make("td", { "data-label": t("csv.problem"), class: "problem" }, one.problem || t("csv.fine"))))))),
      make("div", { class: "buttons" },
        make("button", { type: "button", disabled: good < lines.length || !good, onclick: () => add("all") }, t("csv.addAll")),
        make("button", { type: "button", class: "primary", disabled: !good, onclick: () => add("valid") }, t("csv.addValid", { good }))));
  }

  const box = modal({
    id: "csv", wide: true, title: t("csv.title"), cancel: t("sources.close"),
    body: [make("p", { class: "help" }, t("csv.about")),
      make("label", { for: file.id }, t("csv.file")), file,
      make("label", { for: area.id }, t("csv.text")), area,
      make("div", { class: "buttons" }, make("button", { type: "button", onclick: async () => {
        text(box.error, "");
        try {
          await check();
        } catch (/** @type {any} */ trouble) {
          text(box.error, trouble.message);
        }
      } }, t("csv.check"))), result],
  });
}
