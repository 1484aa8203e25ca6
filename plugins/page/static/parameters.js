// The sampling parameters that a request may have: which ones there are, and a panel to set them.

import { h, labelled } from "./dom.js";

/** Fields of a request: [name, title, attributes of the input, what an empty field means]. */
export const PARAMETERS = [
  ["temperature", "Temperature", { min: 0, max: 2, step: "any" }, "the model’s"],
  ["top_p", "Top p", { min: 0, max: 1, step: "any" }, "the model’s"],
  ["top_k", "Top k", { min: -1, step: 1 }, "the model’s"],
  ["min_p", "Min p", { min: 0, max: 1, step: "any" }, "the model’s"],
  ["max_tokens", "Most tokens", { min: 1, step: 1 }, "the context"],
  ["min_tokens", "Least tokens", { min: 0, step: 1 }, "0"],
  ["seed", "Seed", { step: 1 }, "random"],
  ["presence_penalty", "Presence penalty", { min: -2, max: 2, step: "any" }, "0"],
  ["frequency_penalty", "Frequency penalty", { min: -2, max: 2, step: "any" }, "0"],
  ["repetition_penalty", "Repetition penalty", { min: 0, max: 2, step: "any" }, "1"],
  ["priority", "Priority", { step: 1 }, "0"],
  ["timeout", "Timeout in seconds", { min: 0, step: "any" }, "none"],
];

/** Return a panel that changes the members of `values`, and calls `onchange` after each change. */
export function parameterPanel(values, onchange) {
  const fields = PARAMETERS.map(([name, title, attributes, empty]) => {
    const input = h("input", {
      type: "number", name, placeholder: empty, value: values[name] ?? "", ...attributes,
      oninput: () => {
        if (input.value === "" || !input.validity.valid) delete values[name];
        else values[name] = Number(input.value);
        onchange();
      },
    });
    return labelled(title, input);
  });
  const stop = h("textarea", {
    name: "stop", rows: 2, class: "mono", value: (values.stop ?? []).join("\n"), placeholder: "one text a line",
    oninput: () => {
      const texts = stop.value.split("\n").filter(Boolean);
      if (texts.length) values.stop = texts;
      else delete values.stop;
      onchange();
    },
  });
  return h("div", { class: "parameters" }, fields, h("div", { class: "whole" }, labelled("Stop at", stop)));
}
