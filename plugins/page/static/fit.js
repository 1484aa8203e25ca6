// Says whether a reply fits the JSON schema that its request asked for.

import { h } from "./dom.js";
import { problems, unchecked } from "./schema.js";

/**
 * Return a line, and a list of what is wrong.
 * @param {string} text the reply so far.
 * @param {object} schema the schema.
 * @param {boolean} isWhole whether nothing follows.
 */
export function fitView(text, schema, isWhole) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (!isWhole) return h("p", { class: "fit soft" }, "JSON, not complete yet");
    return h("p", { class: "fit problem" }, `No JSON: ${error.message}`);
  }
  const found = problems(value, schema);
  const left = unchecked(schema);
  const note = left.length ? ` (not checked here: ${left.join(", ")})` : "";
  if (!found.length) return h("p", { class: "fit good" }, `Fits the schema${note}`);
  return h("div", { class: "fit problem" }, `Does not fit the schema${note}:`, h("ul", {}, found.map((each) => h("li", {}, each))));
}
