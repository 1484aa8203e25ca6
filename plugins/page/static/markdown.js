// Shows Markdown as elements. Text stays text: there is no HTML in it, and links go to http, https and mailto only.

import { codeBlock } from "./code.js";
import { h } from "./dom.js";
import { inline } from "./inline.js";

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}>\s?(.*)$/;
const DIVIDER = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 8;

/** Return the elements of a text in Markdown. */
export function markdown(text, depth = 0) {
  const lines = text.split("\n");
  const found = [];
  for (let i = 0; i < lines.length; ) {
    const [element, next] = block(lines, i, depth);
    if (element) found.push(element);
    i = next;
  }
  return found;
}

function block(lines, i, depth) {
  const line = lines[i];
  let match;
  if (!line.trim()) return [null, i + 1];
  if ((match = FENCE.exec(line))) return fenced(lines, i, match[1], match[2]);
  if ((match = HEADING.exec(line))) return [h(`h${Math.min(6, match[1].length + 2)}`, {}, inline(match[2])), i + 1];
  if (RULE.test(line)) return [h("hr"), i + 1];
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, i, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, i, depth);
  if (line.includes("|") && DIVIDER.test(lines[i + 1] ?? "") && lines[i + 1].includes("-")) return table(lines, i);
  return paragraph(lines, i, depth);
}

function fenced(lines, i, mark, language) {
  const end = lines.findIndex((line, place) => place > i && line.trim().startsWith(mark) && !line.trim().slice(mark.length).trim());
  const last = end < 0 ? lines.length : end;
  return [codeBlock(lines.slice(i + 1, last).join("\n"), language), last + 1];
}

function quote(lines, i, depth) {
  const inside = [];
  for (let match; i < lines.length && (match = QUOTE.exec(lines[i])); i++) inside.push(match[1]);
  return [h("blockquote", {}, markdown(inside.join("\n"), depth + 1)), i];
}

function list(lines, i, depth) {
  const [, indent, mark] = ITEM.exec(lines[i]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  while (i < lines.length) {
    const match = ITEM.exec(lines[i]);
    if (!match || match[1].length > indent.length + 1 || /\d/.test(match[2]) !== isOrdered) break;
    const inside = [match[3]];
    const width = lines[i].length - match[3].length;
    for (i++; i < lines.length && belongs(lines, i, indent.length); i++) {
      inside.push(lines[i].slice(Math.min(width, lines[i].search(/\S|$/))));
    }
    const content = markdown(inside.join("\n"), depth + 1);
    const isTight = content.length && content[0].tagName === "P";
    items.push(h("li", {}, isTight ? [...content[0].childNodes] : content[0], content.slice(1)));
  }
  const start = isOrdered ? parseInt(mark, 10) : 1;
  return [h(isOrdered ? "ol" : "ul", start === 1 ? {} : { start }, items), i];
}

/** Return whether a line continues an item whose mark stands at an indent. */
function belongs(lines, i, indent) {
  const own = lines[i].search(/\S/);
  if (own < 0) return (lines[i + 1] ?? "").search(/\S/) > indent;
  return own > indent;
}

function table(lines, i) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
  const head = cells(lines[i]);
  const rows = [];
  for (i += 2; i < lines.length && lines[i].includes("|"); i++) rows.push(cells(lines[i]).slice(0, head.length));
  return [
    h("div", { class: "scroll" },
      h("table", {},
        h("thead", {}, h("tr", {}, head.map((cell) => h("th", {}, inline(cell))))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell)))))),
      ),
    ),
    i,
  ];
}

function paragraph(lines, i, depth) {
  const inside = [lines[i].trim()];
  for (i++; i < lines.length && lines[i].trim() && !starts(lines[i], depth); i++) inside.push(lines[i].trim());
  return [h("p", {}, inline(inside.join("\n"))), i];
}

function starts(line, depth) {
  return FENCE.test(line) || HEADING.test(line) || (depth < MAX_DEPTH && (QUOTE.test(line) || ITEM.test(line)));
}
