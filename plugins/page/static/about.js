// What is served: the model's card, and whether the server answers.

import { button, fill, h } from "./dom.js";
import { askKey, onKey } from "./key.js";
import { ask, askJSON } from "./server.js";

/** The served model: `id`, `max_model_len` and `task`; null until it is known. */
export let model = null;

const EVERY_MS = 10000;
const waiting = new Set();
const dot = h("span", { class: "dot" });
const name = h("span", { class: "model" });

/** Show the server's state in an element, and keep it current. */
export function showServer(element) {
  fill(element, dot, name, button("Key", () => askKey(), { title: "Set the API key", class: "quiet" }));
  onKey(load);
  load();
  setInterval(check, EVERY_MS);
}

/** Call a function once the model is known. */
export function whenKnown(listener) {
  if (model) listener(model);
  else waiting.add(listener);
}

async function load() {
  try {
    model = (await askJSON("v1/models")).data[0];
    name.textContent = model.id;
    name.title = `Context of ${model.max_model_len?.toLocaleString("en")} tokens`;
    document.title = `${model.id} · llmfw`;
    for (const listener of waiting) listener(model);
    waiting.clear();
  } catch (error) {
    if (error.status === 401) askKey(error.message);
    name.textContent = error.status === 401 ? "needs a key" : "";
  }
  check();
}

async function check() {
  if (document.hidden) return;
  const isUp = await ask("health").then(() => true, () => false);
  dot.className = isUp ? "dot up" : "dot down";
  dot.title = isUp ? "The engine runs" : "The engine does not answer";
}
