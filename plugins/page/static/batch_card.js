// One batch: its state, how far it is, and what can be done with it.

import { failedLines } from "./batch_lines.js";
import { button, fill, h, notify, save } from "./dom.js";
import { showResults } from "./results.js";
import { ask, askJSON } from "./server.js";
import { makeBatch } from "./upload.js";

const WORDS = {
  validating: "is checked", in_progress: "runs", finalizing: "is being finished", completed: "completed",
  failed: "failed", expired: "expired", cancelling: "is being cancelled", cancelled: "cancelled",
};
const OPEN = new Set(["validating", "in_progress", "finalizing", "cancelling"]);

/** Return whether a batch may still change. */
export function isOpen(batch) {
  return OPEN.has(batch.status);
}

/**
 * Return the view of a batch.
 * @param {object} batch the batch.
 * @param {number} rate lines per second, as seen from here; 0: not known.
 * @param {function} onchange called when something was done with it.
 */
export function batchCard(batch, rate, onchange) {
  const { total, completed, failed } = batch.request_counts;
  const left = total - completed - failed;
  const actions = h("div", { class: "row" });
  const act = (title, work, properties) => button(title, async (event) => {
    event.target.disabled = true;
    try {
      await work();
    } catch (error) {
      notify(error.message);
    }
    event.target.disabled = false;
  }, properties);
  fill(actions,
    batch.output_file_id && act("Results", () => showResults("Results", batch.output_file_id)),
    batch.output_file_id && act("Download", () => download(batch.output_file_id, `${batch.id}-results.jsonl`)),
    batch.error_file_id && act("Errors", () => showResults("Errors", batch.error_file_id)),
    batch.error_file_id && !isOpen(batch) && act("Retry failed lines", () => retry(batch, onchange)),
    isOpen(batch) && batch.status !== "cancelling" && act("Cancel", async () => {
      await askJSON(`v1/batches/${batch.id}/cancel`, { method: "POST" });
      onchange();
    }));
  return h("article", { class: "card batch", "aria-label": `Batch ${nameOf(batch)}` },
    h("div", { class: "row" }, h("h2", { class: "grow name" }, nameOf(batch)), h("span", { class: `status ${batch.status}` }, WORDS[batch.status] ?? batch.status)),
    progress(total, completed, failed),
    h("p", { class: "soft" },
      `${completed.toLocaleString("en")} of ${total.toLocaleString("en")} lines answered`,
      failed ? `, ${failed.toLocaleString("en")} failed` : "",
      rate && left ? `, ${rate.toFixed(rate < 10 ? 1 : 0)} a second, about ${duration(left / rate)} left` : "",
      `. ${batch.endpoint}, created ${new Date(batch.created_at * 1000).toLocaleString()}`),
    batch.errors?.data?.length > 0 && h("ul", { class: "problem" }, batch.errors.data.slice(0, 10).map((each) =>
      h("li", {}, each.line ? `Line ${each.line}: ` : "", each.message))),
    actions);
}

function progress(total, completed, failed) {
  const bar = (name, part) => {
    const made = h("span", { class: name });
    made.style.setProperty("--part", `${total ? (100 * part) / total : 0}%`);
    return made;
  };
  return h("div", { class: "progress", role: "progressbar", "aria-label": "Lines", "aria-valuemin": 0, "aria-valuemax": total, "aria-valuenow": completed + failed },
    bar("done", completed), bar("bad", failed));
}

function nameOf(batch) {
  return batch.metadata?.name || batch.id;
}

async function download(id, name) {
  save(name, await (await ask(`v1/files/${id}/content`)).blob());
}

async function retry(batch, onchange) {
  const [input, errors] = await Promise.all([batch.input_file_id, batch.error_file_id].map(async (id) => (await ask(`v1/files/${id}/content`)).text()));
  const lines = failedLines(input, errors);
  await makeBatch(new Blob([lines]), `failed lines of ${nameOf(batch)}`, batch.endpoint);
  onchange();
}

function duration(seconds) {
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
