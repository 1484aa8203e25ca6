// The parts of a line of Markdown: code, emphasis, links. Whatever is none of these stays as it was written.

import { h } from "./dom.js";

const PARTS = new RegExp(
  [
    /\\([\\`*_{}[\]()#+.!|<>~-])/.source, // 1: an escaped character
    /(`+)([^`]|[^`][^]*?[^`])\2(?!`)/.source, // 2, 3: code
    /!?\[([^[\]\n]{0,500})\]\(\s*<?([^\s()<>]{1,2000})>?\s*\)/.source, // 4, 5: a link
    /\b(https?:\/\/[^\s<>"'`]{1,2000}[^\s<>"'`.,:;!?)\]])/.source, // 6: an address
    /\*\*(?=\S)([^]{1,5000}?\S)\*\*/.source, // 7: strong
    /\*(?=[^\s*])([^*]{0,5000}[^\s*])\*/.source, // 8: emphasis
    /(?<!\w)_(?=[^\s_])([^_]{0,5000}[^\s_])_(?!\w)/.source, // 9: emphasis
    /~~(?=\S)([^~]{1,5000}?)~~/.source, // 10: deleted
    /( {2,}|\\)?\n/.source, // 11: a line break
  ].join("|"),
  "g",
);
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const MAX_DEPTH = 6;

/** Return the nodes of a text without blocks. */
export function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const found = [];
  let last = 0;
  for (const match of text.matchAll(PARTS)) {
    if (match.index > last) found.push(text.slice(last, match.index));
    found.push(part(match, depth));
    last = match.index + match[0].length;
  }
  found.push(text.slice(last));
  return found.filter((each) => each !== "");
}

function part(match, depth) {
  const [whole, escaped, , code, label, target, address, strong, starred, underlined, deleted] = match;
  if (escaped !== undefined) return escaped;
  if (code !== undefined) return h("code", {}, code);
  if (target !== undefined) return link(target, inline(label || target, depth + 1), whole);
  if (address !== undefined) return link(address, [address], whole);
  if (strong !== undefined) return h("strong", {}, inline(strong, depth + 1));
  if (starred !== undefined) return h("em", {}, inline(starred, depth + 1));
  if (underlined !== undefined) return h("em", {}, inline(underlined, depth + 1));
  if (deleted !== undefined) return h("del", {}, inline(deleted, depth + 1));
  return h("br");
}

/** Return a link to another site; the text as it was written if the address is no such link. */
function link(target, children, whole) {
  try {
    if (!SCHEMES.has(new URL(target).protocol)) return whole;
  } catch {
    return whole;
  }
  return h("a", { href: target, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}
