// A place to drop a file of requests: it is checked here, then sent, and becomes a batch.

import { checked } from "./batch_lines.js";
import { button, fill, h, notify } from "./dom.js";
import { askJSON } from "./server.js";

/** Return the element. `onmade` is called with each batch that was made. */
export function uploadArea(onmade) {
  const input = h("input", { type: "file", accept: ".jsonl,.ndjson,application/jsonl", hidden: true, "aria-label": "File of requests", onchange: () => take(input.files[0]) });
  const found = h("div", { role: "status" });
  const area = h("div", {
    class: "drop",
    ondragover: (event) => {
      event.preventDefault();
      area.classList.add("over");
    },
    ondragleave: () => area.classList.remove("over"),
    ondrop: (event) => {
      event.preventDefault();
      area.classList.remove("over");
      take(event.dataTransfer.files[0]);
    },
  },
    h("p", {}, "Drop a file of requests here, or ", button("choose one", () => input.click()), input),
    h("p", { class: "soft" }, "JSONL: a line for each request, with custom_id, method, url and body."),
    found);

  async function take(file) {
    input.value = "";
    if (!file) return;
    const { lines, endpoint, problems } = checked(await file.text());
    const start = button("Start", () => send(file, endpoint, start), { class: "main" });
    fill(found,
      h("p", {}, h("strong", {}, file.name), h("span", { class: "soft" }, ` ${lines.toLocaleString("en")} lines${endpoint ? `, ${endpoint}` : ""}`)),
      problems.length > 0
        ? [h("p", { class: "problem" }, "It cannot be sent as it is:"), h("ul", { class: "problem" }, problems.map((each) => h("li", {}, each)))]
        : h("div", { class: "row" }, start, button("Cancel", () => fill(found))));
  }

  async function send(file, endpoint, start) {
    start.disabled = true;
    try {
      onmade(await makeBatch(file, file.name, endpoint));
      fill(found);
    } catch (error) {
      start.disabled = false;
      notify(error.message);
    }
  }

  return area;
}

/** Upload a file of requests, and make a batch of it; return the batch. */
export async function makeBatch(content, name, endpoint) {
  const form = new FormData();
  form.append("purpose", "batch");
  form.append("file", content, name);
  const { id } = await askJSON("v1/files", { method: "POST", body: form });
  const batch = { input_file_id: id, endpoint, completion_window: "24h", metadata: { name: name.slice(0, 500) } };
  return askJSON("v1/batches", { json: batch });
}
