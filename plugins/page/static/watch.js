// The view that shows the engine at work: the batch step by step, the prefix cache, and figures.

import { Figure, Histogram, seconds } from "./chart.js";
import { button, fill, h } from "./dom.js";
import { Feed } from "./feed.js";
import { History } from "./history.js";
import { Lanes } from "./lanes.js";
import { histogramOf } from "./metrics.js";
import { policyChoice } from "./policy.js";
import { PrefixMap } from "./prefix_map.js";
import { requestsTable } from "./requests_table.js";
import { showStory } from "./story.js";

const FIGURES_MS = 500;
const METRICS_MS = 3000;
const PHASES = ["plan", "forward", "sample", "wait", "commit"];

/** Return the view. */
export function watch() {
  const history = new History();
  const hint = h("p", { class: "hint soft", role: "status" }, "Point at a lane for its request; click it for its whole story.");
  const lanes = new Lanes(history, point, (request) => showStory(request.id));
  const table = requestsTable((request) => showStory(request.id));
  const state = h("span", { class: "state soft", role: "status" });
  const policy = policyChoice();
  const cache = new PrefixMap();
  const feed = new Feed(take, (text) => (state.textContent = text === "live" ? "" : text));
  const whole = (value) => Math.round(value).toLocaleString("en");
  const figures = {
    running: new Figure("Running", whole),
    waiting: new Figure("Waiting", whole),
    speed: new Figure("Tokens/s", whole),
    kv: new Figure("KV cache in use", (value) => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`, 1),
    hits: new Figure("Prompt tokens cached", (value) => `${(value * 100).toFixed(0)} %`, 1),
    step: new Figure("Step", (value) => seconds(value)),
  };
  const gaps = new Histogram("Time between tokens");
  const first = new Histogram("Time to the first token");
  const phases = h("div", { class: "phases" });
  const back = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Scroll back", hidden: true, oninput: scroll });
  const pausing = button("Pause", () => pause(lanes.frozen === null), { "aria-pressed": "false" });
  let before = null;
  let shownAt = 0;
  let timer = 0;

  function take(frame) {
    const numNew = history.take(frame.steps);
    lanes.draw(numNew);
    if (frame.stats && performance.now() - shownAt > FIGURES_MS) showFigures(frame);
  }

  function showFigures({ at, stats }) {
    shownAt = performance.now();
    if (lanes.frozen === null) table.show(history);
    figures.running.add(stats.num_running);
    figures.waiting.add(stats.num_waiting);
    figures.kv.add((stats.num_used_tokens || 0) / (stats.num_total_tokens || 1));
    if (before && stats.num_steps >= before.stats.num_steps) {
      const since = (name) => stats[name] - before.stats[name];
      figures.speed.add(since("num_generated_tokens") / (at - before.at));
      figures.hits.add(since("num_prompt_tokens") ? since("num_prompt_cached") / since("num_prompt_tokens") : (figures.hits.values.at(-1) ?? 0));
      const spent = stats.step_seconds.map((each, i) => each - before.stats.step_seconds[i]);
      const num = since("num_steps");
      figures.step.add(num ? spent.reduce((sum, each) => sum + each, 0) / num : 0);
      if (num) showPhases(spent);
    }
    if (stats.live_gaps) gaps.show(stats.live_gaps[0], stats.live_gaps[1]);
    before = { at, stats };
  }

  function showPhases(spent) {
    const all = spent.reduce((sum, each) => sum + each, 0) || 1;
    const bars = PHASES.map((name, i) => {
      const bar = h("span", { class: `phase phase-${i}` });
      bar.style.setProperty("--part", spent[i] / all);
      return bar;
    });
    const words = PHASES.map((name, i) => h("span", {}, h("i", { class: `phase-${i}` }), `${name} ${((100 * spent[i]) / all).toFixed(0)} %`));
    fill(phases, h("div", { class: "phase-bars", "aria-hidden": "true" }, bars), h("div", { class: "phase-words soft" }, words));
  }

  function point(request) {
    hint.textContent = request
      ? `${request.id}: step ${request.step}, ${request.kind ? `${request.count} tokens of the prompt` : `${request.count} token`}, ` +
        `${request.promptTokens} in the prompt${request.tenant ? `, of ${request.tenant}` : ""}${request.isDeferrable ? ", batch" : ""}`
      : "Point at a lane for its request; click it for its whole story.";
  }

  function pause(isPaused) {
    lanes.pause(isPaused);
    pausing.textContent = isPaused ? "Go on" : "Pause";
    pausing.setAttribute("aria-pressed", String(isPaused));
    back.hidden = !isPaused;
    back.max = back.value = Math.max(0, history.steps.length - 1);
  }

  function scroll() {
    lanes.back = Number(back.max) - Number(back.value);
    lanes.draw();
  }

  async function showFirst() {
    clearTimeout(timer);
    try {
      const found = await histogramOf("llmfw_time_to_first_token_seconds");
      if (found) first.show(found.bounds, found.counts);
    } catch {
      first.show([], []);
    }
    timer = setTimeout(showFirst, METRICS_MS);
  }

  const legend = [["prompt", "prompt"], ["decode", "one token"], ["draft", "with drafts"], ["retracted", "retracted"]]
    .map(([name, words]) => h("span", { class: `key-${name}` }, words));
  return {
    open() {
      feed.open();
      policy.open();
      cache.open();
      showFirst();
    },
    close() {
      feed.close();
      cache.close();
      clearTimeout(timer);
    },
    element: h("div", { class: "watch" },
      h("div", { class: "figures-row" }, Object.values(figures).map((each) => each.element)),
      h("section", { class: "card" },
        h("div", { class: "row" }, h("h2", {}, "Batch"), h("span", { class: "legend soft" }, legend), h("span", { class: "grow" }), state, policy.element, pausing),
        lanes.canvas, back, hint, table.element),
      h("div", { class: "pair" },
        cache.element,
        h("section", { class: "card stack" }, h("h2", {}, "Latency"), first.element, gaps.element, h("h3", {}, "Where a step’s time goes"), phases)),
    ),
  };
}
