// The prefix cache as a map: the larger a field, the more tokens a prefix has of its own; the paler, the older it is.

import { button, fill, h, notify } from "./dom.js";
import { askJSON } from "./server.js";
import { squarified } from "./treemap.js";

const MOST = 400; // prefixes
const EVERY_MS = 1500;
const OLD_S = 600; // age at which a field is palest

/** Shows the contents of the prefix cache, and flushes it. */
export class PrefixMap {
  constructor() {
    this.timer = 0;
    this.summary = h("p", { class: "soft" });
    this.detail = h("p", { class: "detail soft", role: "status" }, "Point at a field for what it is.");
    this.map = h("div", { class: "map", role: "list", "aria-label": "Prefixes in the cache" });
    this.showsTexts = h("input", { type: "checkbox", name: "texts" });
    this.element = h("section", { class: "card" },
      h("div", { class: "row" }, h("h2", { class: "grow" }, "Prefix cache"),
        h("label", { class: "check" }, this.showsTexts, "Show texts"),
        button("Flush", () => this.flush(), { title: "Evict all that no request and no pin holds" })),
      this.summary, this.map, this.detail);
  }

  /** Start to show the cache. */
  open() {
    this.load();
  }

  /** Stop. */
  close() {
    clearTimeout(this.timer);
    this.timer = 0;
  }

  async load() {
    clearTimeout(this.timer);
    try {
      this.show(await askJSON(`admin/cache?most=${MOST}`));
      this.timer = setTimeout(() => this.load(), EVERY_MS);
    } catch (error) {
      this.summary.textContent = error.message;
      fill(this.map);
    }
  }

  async flush() {
    try {
      this.show(await askJSON("admin/cache/flush", { method: "POST" }));
      notify("Flushed");
    } catch (error) {
      notify(error.message);
    }
  }

  show(cache) {
    const rate = cache.num_asked ? ` ${((100 * cache.num_hit) / cache.num_asked).toFixed(0)} % of prompt tokens were found.` : "";
    this.summary.textContent = `${number(cache.num_tokens)} tokens in ${number(cache.num_nodes)} prefixes; ` +
      `${number(cache.num_locked)} in use, ${number(cache.num_pinned)} pinned, ${number(cache.num_evicted)} evicted by ${cache.eviction}.${rate}`;
    const shown = cache.prefixes.filter((each) => each.own_tokens > 0).sort((a, b) => b.own_tokens - a.own_tokens);
    const { clientWidth, clientHeight } = this.map;
    const places = squarified(shown.map((each) => each.own_tokens), clientWidth, clientHeight);
    fill(this.map, places.map((place, i) => this.field(place, shown[i])));
  }

  field({ x, y, width, height }, prefix) {
    const words = this.words(prefix);
    const state = prefix.pinned ? " pinned" : prefix.users ? " used" : "";
    const show = () => (this.detail.textContent = words);
    const made = h("div", { class: `prefix${state}`, role: "listitem", tabindex: width * height > 600 ? "0" : null, "aria-label": words, onpointerenter: show, onfocus: show },
      width > 44 && height > 18 && h("span", {}, number(prefix.own_tokens)));
    const values = { "--x": `${x}px`, "--y": `${y}px`, "--wide": `${width}px`, "--high": `${height}px`, "--age": 1 - Math.min(1, prefix.age_s / OLD_S) * 0.75 };
    for (const [name, value] of Object.entries(values)) made.style.setProperty(name, value);
    return made;
  }

  words(prefix) {
    const parts = [
      `${number(prefix.own_tokens)} tokens, at the end of ${number(prefix.num_tokens)}`,
      `${number(prefix.hits)} hits`,
      `last used ${prefix.age_s.toFixed(0)} s ago`,
    ];
    if (prefix.users) parts.push(`${prefix.users} requests hold it`);
    if (prefix.pinned) parts.push("pinned");
    if (prefix.tenant) parts.push(`of ${prefix.tenant}`);
    const text = this.showsTexts.checked ? ` — ${prefix.first_text}${prefix.last_text ? ` … ${prefix.last_text}` : ""}` : "";
    return parts.join(", ") + text;
  }
}

function number(value) {
  return value.toLocaleString("en");
}
