// The view in which people talk to the model: conversations, columns, settings.

import { Column } from "./column.js";
import { composer } from "./composer.js";
import { newColumn, newConversation } from "./conversation.js";
import { button, fill, h } from "./dom.js";
import { settingsPanel } from "./settings.js";
import { keep } from "./shelf.js";
import { shelfView } from "./shelf_view.js";
import { showStory } from "./story.js";

/** Return the view. */
export function play() {
  let conversation = newConversation();
  let columns = [];
  const area = h("div", { class: "columns" });
  const panel = h("aside", { class: "panel", "aria-label": "Settings" });
  const field = composer(send, () => columns.forEach((column) => column.stop()));
  const shelf = shelfView(open, () => conversation);
  const sides = { shelf: shelf.element, panel };
  const toggles = {
    shelf: button("Conversations", () => toggle("shelf"), { class: "quiet" }),
    panel: button("Settings", () => toggle("panel"), { class: "quiet" }),
  };
  const compare = button("Compare", split, { class: "quiet", title: "Two columns with settings of their own" });

  function open(next) {
    columns.forEach((column) => column.stop());
    conversation = next;
    columns = next.columns.map((data) => new Column(data, changed, showStory));
    draw();
    if (innerWidth < 900) toggle("shelf", false);
  }

  function draw() {
    fill(area, columns.map((column) => column.element));
    fill(panel, columns.map((column, i) => {
      const settings = settingsPanel(column.data.settings, (name) => {
        if (["mode", "tokens", "schema"].includes(name)) column.draw();
        if (name === "mode") draw();
        changed();
      });
      return h("section", {}, columns.length > 1 && h("h2", {}, `Column ${i + 1}`), settings);
    }));
    compare.setAttribute("aria-pressed", String(columns.length > 1));
    field.element.hidden = columns.every((column) => column.data.settings.mode === "text");
    changed(false);
  }

  function changed(isKept = true) {
    const isRunning = columns.some((column) => column.isRunning);
    field.draw(isRunning);
    const isBlank = conversation.columns.every((column) => !column.messages.length && !column.text);
    if (isKept && !isRunning && !isBlank) keep(conversation);
    if (!isRunning) shelf.draw();
  }

  function send(text) {
    for (const column of columns) if (column.data.settings.mode === "chat") column.send(text);
  }

  function split() {
    columns.forEach((column) => column.stop());
    if (conversation.columns.length > 1) conversation.columns.pop();
    else conversation.columns.push(newColumn(structuredClone(conversation.columns[0].settings)));
    open(conversation);
    toggle("panel", conversation.columns.length > 1 && innerWidth >= 900);
  }

  function toggle(name, isOpen = sides[name].hidden) {
    sides[name].hidden = !isOpen;
    toggles[name].setAttribute("aria-expanded", String(isOpen));
    if (isOpen && innerWidth < 900) for (const other of Object.keys(sides)) if (other !== name) toggle(other, false);
  }

  toggle("panel", false);
  toggle("shelf", innerWidth >= 1100);
  open(conversation);
  const bar = h("div", { class: "toolbar" },
    toggles.shelf, button("New", () => open(newConversation()), { class: "quiet" }), h("span", { class: "grow" }), compare, toggles.panel);
  return {
    element: h("div", { class: "play" }, shelf.element, h("div", { class: "talk" }, bar, area, field.element), panel),
    open: () => innerWidth >= 900 && field.focus(),
  };
}
