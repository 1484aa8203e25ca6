// The page: its views, one at a time, chosen by the part of the address after #.

import { showServer } from "./about.js";
import { batches } from "./batches.js";
import { fill, h } from "./dom.js";
import { onKey } from "./key.js";
import { play } from "./play.js";
import { watch } from "./watch.js";

/** Views by name. Each function returns { element, open?, close? }. It is called once, when the view is first opened. */
const VIEWS = { play: ["Play", play], watch: ["Watch", watch], batches: ["Batches", batches] };

const main = document.getElementById("main");
const tabs = document.getElementById("tabs");
const made = {};
let shown = null;

function show() {
  const asked = location.hash.slice(1);
  const name = Object.hasOwn(VIEWS, asked) ? asked : Object.keys(VIEWS)[0];
  if (shown === name || asked === "main") return;
  made[shown]?.close?.();
  shown = name;
  made[name] ??= VIEWS[name][1]();
  fill(main, made[name].element);
  main.dataset.view = name;
  made[name].open?.();
  for (const tab of tabs.children) {
    if (tab.hash === `#${name}`) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
}

fill(tabs, Object.entries(VIEWS).map(([name, [title]]) => h("a", { href: `#${name}` }, title)));
showServer(document.getElementById("server"));
addEventListener("hashchange", show);
onKey(() => {
  made[shown].close?.();
  made[shown].open?.();
});
show();
