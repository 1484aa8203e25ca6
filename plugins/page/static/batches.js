// The view of batch jobs: making them, following them, reading their results.

import { batchCard, isOpen } from "./batch_card.js";
import { button, fill, h } from "./dom.js";
import { askJSON } from "./server.js";
import { uploadArea } from "./upload.js";

const SOON_MS = 1000; // between two looks while a batch runs
const LATER_MS = 10000;
const PAGE = 20;

/** Return the view. */
export function batches() {
  const list = h("div", { class: "stack" });
  const more = button("Show older ones", () => {
    wanted += PAGE;
    load();
  }, { hidden: true });
  const seen = new Map(); // id of a batch -> { at, done, rate }
  let wanted = PAGE;
  let timer = 0;
  let isShown = false;

  async function load() {
    clearTimeout(timer);
    let wait = LATER_MS;
    try {
      const found = await askJSON(`v1/batches?limit=${Math.min(100, wanted)}`);
      fill(list, found.data.length
        ? found.data.map((batch) => batchCard(batch, rateOf(batch), load))
        : h("p", { class: "empty" }, "No batches yet."));
      more.hidden = !found.has_more || wanted >= 100;
      if (found.data.some(isOpen)) wait = SOON_MS;
    } catch (error) {
      fill(list, h("p", { class: "problem" }, error.message));
    }
    if (isShown) timer = setTimeout(load, wait);
  }

  /** Return how many lines of a batch end in a second, smoothed. */
  function rateOf({ id, request_counts: { completed, failed } }) {
    const now = performance.now();
    const done = completed + failed;
    const last = seen.get(id);
    if (!last) seen.set(id, { at: now, done, rate: 0 });
    else if (now - last.at > SOON_MS / 2) {
      const rate = ((done - last.done) * 1000) / (now - last.at);
      seen.set(id, { at: now, done, rate: last.rate ? 0.7 * last.rate + 0.3 * rate : rate });
    }
    return seen.get(id).rate;
  }

  return {
    open() {
      isShown = true;
      load();
    },
    close() {
      isShown = false;
      clearTimeout(timer);
    },
    element: h("div", { class: "batches" }, uploadArea(load), list, more),
  };
}
