// The list of kept conversations, with export and import.

import { titleOf } from "./conversation.js";
import { button, fill, h, notify, save } from "./dom.js";
import { exported, forget, imported, kept } from "./shelf.js";

/**
 * Return { element, draw }.
 * @param {function} open called with the conversation that was chosen.
 * @param {function} current returns the conversation that is shown.
 */
export function shelfView(open, current) {
  const list = h("ul", {});
  const file = h("input", { type: "file", accept: "application/json,.json", hidden: true, onchange: take, "aria-label": "File to import" });

  async function take() {
    const [chosen] = file.files;
    file.value = "";
    if (!chosen) return;
    try {
      const found = imported(await chosen.text());
      notify(`${found.length} conversations imported`);
      if (found.length) open(found[0]);
    } catch (error) {
      notify(`${chosen.name} cannot be imported: ${error.message}`);
    }
  }

  function draw() {
    const all = kept();
    fill(list, all.length ? all.map(item) : h("li", { class: "soft" }, "They are kept in this browser only."));
  }

  function item(conversation) {
    const isShown = conversation.id === current().id;
    return h("li", { class: isShown ? "shown" : null },
      button(titleOf(conversation), () => isShown || open(conversation), { class: "quiet title" }),
      button("×", () => {
        forget(conversation);
        draw();
      }, { class: "quiet", "aria-label": `Delete ${titleOf(conversation)}` }));
  }

  return {
    draw,
    element: h("aside", { class: "shelf", "aria-label": "Conversations" },
      list,
      h("div", { class: "row" },
        button("Export", () => save("llmfw-conversations.json", exported(kept())), { class: "quiet" }),
        button("Import", () => file.click(), { class: "quiet" }),
        file)),
  };
}
