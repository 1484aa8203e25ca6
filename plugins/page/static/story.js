// The story of a request: what the scheduler decided about it, and when.

import { button, h, notify } from "./dom.js";
import { askJSON } from "./server.js";

const MEANINGS = {
  arrived: "arrived",
  waits: "waited",
  admitted: "was admitted",
  computed: "its prompt was computed",
  retracted: "lost its place",
  ended: "ended",
};

/** Open a dialog with the decisions about a request, by the id of its reply or its own. */
export async function showStory(id) {
  let found;
  try {
    found = await askJSON(`admin/requests/${encodeURIComponent(id)}`);
  } catch (error) {
    notify(error.message);
    return;
  }
  const dialog = h("dialog", { class: "wide story", "aria-labelledby": "story-title", onclose: () => dialog.remove() },
    h("div", { class: "stack" },
      h("h2", { id: "story-title" }, "What happened to this request"),
      h("p", { class: "soft mono" }, id),
      found.traces.map(timeline),
      h("div", { class: "row" }, button("Close", () => dialog.close(), { class: "main" })),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function timeline(trace) {
  const last = trace.entries.at(-1);
  const whole = Math.max(last?.until_s || 0, last?.at_s || 0) || 1;
  const rows = trace.entries.map((entry) => row(entry, whole));
  return h("ol", { class: "timeline" }, rows,
    trace.num_left_out > 0 && h("li", { class: "soft" }, `${trace.num_left_out} entries were left out in the middle`));
}

function row(entry, whole) {
  const until = Math.max(entry.until_s ?? 0, entry.at_s);
  const bar = h("span", { class: `span ${entry.kind}` });
  bar.style.setProperty("--from", `${(entry.at_s / whole) * 100}%`);
  bar.style.setProperty("--long", `${((until - entry.at_s) / whole) * 100}%`);
  const tokens = entry.num_tokens ? `, ${entry.num_tokens} tokens${entry.kind === "admitted" ? " from the cache" : ""}` : "";
  const ahead = entry.num_ahead ? `, ${entry.num_ahead} ahead` : "";
  const step = entry.first_step ? `, step ${entry.first_step}${entry.last_step > entry.first_step ? `–${entry.last_step}` : ""}` : "";
  return h("li", {},
    h("span", { class: "number soft" }, `${(entry.at_s * 1000).toFixed(0)} ms`),
    h("span", { class: "what" }, MEANINGS[entry.kind] ?? entry.kind, entry.reason ? `: ${entry.reason}` : "", h("span", { class: "soft" }, tokens, ahead, step)),
    h("span", { class: "track", "aria-hidden": "true" }, bar),
  );
}
