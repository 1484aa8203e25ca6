// The user's API key: in memory, or in the tab's session storage if the user asks for that.

import { button, h, labelled } from "./dom.js";

const NAME = "llmfw.key";
let key = sessionStorage.getItem(NAME) ?? "";
const listeners = new Set();

/** Return the headers that carry the key; none without a key. */
export function authorization() {
  return key ? { authorization: `Bearer ${key}` } : {};
}

/** Call a function whenever the key changes. */
export function onKey(listener) {
  listeners.add(listener);
}

/** Open the dialog in which the user gives a key. */
export function askKey(reason = "") {
  if (document.querySelector("dialog.key")) return;
  const input = h("input", { type: "password", autocomplete: "off", value: key, name: "key", class: "mono" });
  const isKept = h("input", { type: "checkbox", checked: sessionStorage.getItem(NAME) !== null });
  const dialog = h(
    "dialog", { class: "key", "aria-labelledby": "key-title", onclose: () => dialog.remove() },
    h("form", { method: "dialog", onsubmit: () => take(input.value.trim(), isKept.checked) },
      h("h2", { id: "key-title" }, "API key"),
      reason && h("p", { class: "problem" }, reason),
      labelled("Key", input, "It stays in this tab’s memory, and is sent to this server only."),
      h("label", { class: "check" }, isKept, "Keep it until this tab is closed"),
      h("div", { class: "row" },
        button("Cancel", () => dialog.close()),
        h("button", { class: "main" }, "Use this key"),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}

function take(value, isKept) {
  key = value;
  if (isKept && key) sessionStorage.setItem(NAME, key);
  else sessionStorage.removeItem(NAME);
  for (const listener of listeners) listener();
}
