// The scheduling policy in force, and the choice of another.

import { fill, h, notify } from "./dom.js";
import { askJSON } from "./server.js";

/** Return { element, open }: the choice, and a function that asks the server for the policy in force. */
export function policyChoice() {
  const choice = h("select", { name: "policy", onchange: set, "aria-label": "Scheduling policy" });
  const problem = h("span", { class: "problem" });

  async function open() {
    try {
      show(await askJSON("admin/policy"));
    } catch (error) {
      problem.textContent = error.message;
    }
  }

  async function set() {
    try {
      show(await askJSON("admin/policy", { method: "PUT", json: { name: choice.value } }));
      notify(`The policy is ${choice.value} from the next step on`);
    } catch (error) {
      notify(error.message);
      open();
    }
  }

  function show(info) {
    const names = info.known.length ? info.known : [info.name];
    fill(choice, names.map((name) => h("option", { value: name, selected: name === info.name }, name)));
    problem.textContent = info.failure ?? "";
  }

  return { open, element: h("div", { class: "row policy" }, h("label", { class: "check" }, "Policy", choice), problem) };
}
