// The lines of an output or an error file, to read and to filter.

import { objects } from "./batch_lines.js";
import { button, fill, h } from "./dom.js";
import { ask } from "./server.js";

const MOST_BYTES = 2 * 2 ** 20; // of the file that are read
const MOST = 100; // lines that are shown

/** Open a dialog with the lines of a file. */
export async function showResults(title, fileId) {
  const reply = await ask(`v1/files/${fileId}/content`, { headers: { range: `bytes=0-${MOST_BYTES - 1}` } });
  const isCut = reply.status === 206 && Number(reply.headers.get("content-range")?.split("/")[1]) > MOST_BYTES;
  const all = objects(await reply.text());
  const list = h("ol", { class: "results" });
  const note = h("p", { class: "soft", role: "status" });
  const filter = h("input", { type: "search", name: "filter", placeholder: "Filter", "aria-label": "Filter", oninput: draw });

  function draw() {
    const words = filter.value.toLowerCase();
    const found = all.filter(([line]) => line.toLowerCase().includes(words));
    fill(list, found.slice(0, MOST).map(([, value]) => item(value)));
    note.textContent = `${found.length.toLocaleString("en")} lines${found.length > MOST ? `, of which ${MOST} are shown` : ""}${isCut ? "; the rest of the file is only in the download" : ""}`;
  }

  const dialog = h("dialog", { class: "wide", "aria-labelledby": "results-title", onclose: () => dialog.remove() },
    h("div", { class: "stack" }, h("h2", { id: "results-title" }, title), filter, note, list,
      h("div", { class: "row" }, button("Close", () => dialog.close(), { class: "main" }))));
  draw();
  document.body.append(dialog);
  dialog.showModal();
}

function item(value) {
  return h("li", {}, h("strong", { class: "mono" }, String(value.custom_id)), h("pre", { class: "mono plain" }, shown(value)));
}

/** Return what a line's reply says; its JSON if it has no text. */
function shown({ response, error }) {
  const problem = error?.message ?? response?.body?.error?.message;
  if (problem) return problem;
  const choice = response?.body?.choices?.[0];
  const text = choice?.message?.content ?? choice?.text;
  return typeof text === "string" && text ? text : JSON.stringify(response?.body ?? null, null, 1);
}
