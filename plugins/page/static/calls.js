// The tool calls of a reply, and places to write what the tools returned.

import { colored } from "./code.js";
import { button, h, labelled } from "./dom.js";

/**
 * Return the view of a reply's calls.
 * @param {Array} calls the calls: { id, name, arguments }.
 * @param {function|null} send called with the results, one text for each call; null: they cannot be sent now.
 */
export function callsView(calls, send) {
  const fields = calls.map((call) =>
    h("textarea", { rows: 2, class: "mono tool-result", placeholder: '{"temperature": 21}', "aria-label": `Result of ${call.name}` }));
  return h("div", { class: "calls" },
    calls.map((call, i) =>
      h("div", { class: "call" },
        h("p", {}, h("span", { class: "soft" }, "calls "), h("strong", { class: "mono" }, call.name)),
        h("pre", { class: "mono" }, colored(pretty(call.arguments), "json")),
        send && labelled("What it returned", fields[i]),
      )),
    send && h("div", { class: "row" },
      button(calls.length > 1 ? "Send the results" : "Send the result", () => send(fields.map((field) => field.value)), { class: "main" })),
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
