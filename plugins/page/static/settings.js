// The panel with a column's settings.

import { button, h, labelled } from "./dom.js";
import { parameterPanel } from "./parameters.js";
import { parsed } from "./request.js";

const TOOL_EXAMPLE = JSON.stringify([{
  name: "get_weather",
  description: "Get the weather of a city.",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
}], null, 2);
const SCHEMA_EXAMPLE = JSON.stringify({
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer", minimum: 0 } },
  required: ["name", "age"],
  additionalProperties: false,
}, null, 2);

/** Return the panel. It changes the members of `settings`, and calls `onchange` with the name of each that changed. */
export function settingsPanel(settings, onchange) {
  const set = (name, value) => {
    settings[name] = value;
    onchange(name);
  };
  const isChat = settings.mode === "chat";
  return h("div", { class: "stack settings" },
    modes(settings, set),
    h("label", { class: "check" },
      h("input", { type: "checkbox", name: "tokens", checked: settings.tokens, onchange: (event) => set("tokens", event.target.checked) }),
      "Show tokens with probabilities"),
    isChat && labelled("Instructions (system message)",
      h("textarea", { rows: 3, name: "system", value: settings.system, oninput: (event) => set("system", event.target.value) })),
    isChat && labelled("Thinking", thinking(settings, set)),
    h("details", { open: true }, h("summary", {}, "Sampling"), parameterPanel(settings.parameters, () => onchange("parameters"))),
    isChat && json("Tools", "tools", settings, set, TOOL_EXAMPLE, "A list of functions with JSON schemas of their arguments"),
    isChat && json("Form of the reply", "schema", settings, set, SCHEMA_EXAMPLE, "A JSON schema that the reply must fit"),
  );
}

function modes(settings, set) {
  const choice = (value, title) =>
    button(title, () => set("mode", value), { class: "quiet", "aria-pressed": String(settings.mode === value) });
  return h("div", { class: "row", role: "group", "aria-label": "Mode" }, choice("chat", "Chat"), choice("text", "Continue a text"));
}

function thinking(settings, set) {
  const options = [["", "As the model does"], ["on", "On"], ["off", "Off"]];
  return h("select", { name: "thinking", onchange: (event) => set("thinking", event.target.value) },
    options.map(([value, title]) => h("option", { value, selected: settings.thinking === value }, title)));
}

function json(title, name, settings, set, example, note) {
  const problem = h("p", { class: "problem" });
  const field = h("textarea", {
    rows: 8, class: "mono", name, value: settings[name], placeholder: example, spellcheck: "false",
    oninput: () => {
      check();
      set(name, field.value);
    },
  });
  const check = () => {
    try {
      parsed(field.value, title);
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
    }
    field.classList.toggle("invalid", problem.textContent !== "");
  };
  check();
  const insert = button("Insert an example", () => {
    field.value = example;
    field.dispatchEvent(new Event("input"));
  }, { class: "quiet" });
  return h("details", { open: Boolean(settings[name]) }, h("summary", {}, title), labelled(note, field), problem, insert);
}
