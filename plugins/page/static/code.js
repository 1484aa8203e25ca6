// Blocks of code, with a button to copy them, and colors for words, texts, numbers and comments of common languages.

import { button, copy, h } from "./dom.js";

const WORDS = new Set(
  ("and as async await break case catch class const continue def default del do elif else enum except export extends " +
    "false False finally fn for from func function if impl import in int interface is lambda let match mod module mut new " +
    "nil None not null or package pass pub public private raise return select self static struct super switch this throw " +
    "true True try type undefined use var void while with yield where SELECT FROM WHERE INSERT UPDATE DELETE JOIN ORDER BY GROUP")
    .split(" "),
);
const HASH = new Set(["py", "python", "sh", "bash", "shell", "console", "yaml", "yml", "toml", "rb", "ruby", "r", "make", "dockerfile"]);
const SLASH = /\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)/.source;
const COMMON = [
  /"""[^]*?(?:"""|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|`(?:\\.|[^`\\])*`?/.source,
  /\b\d[\w.]*/.source,
  /[A-Za-z_]\w*/.source,
];
const MAX_COLORED = 50000; // characters; larger blocks are shown plainly

/** Return a block of code. */
export function codeBlock(text, language = "") {
  return h("figure", { class: "code" },
    h("figcaption", {}, h("span", {}, language || "text"), button("Copy", () => copy(text), { class: "quiet" })),
    h("pre", { tabindex: "0" }, h("code", {}, colored(text, language.toLowerCase()))),
  );
}

/** Return the nodes of a code, with colors. */
export function colored(text, language) {
  if (text.length > MAX_COLORED || language === "" || language === "text") return [text];
  const comment = HASH.has(language) ? /#[^\n]*/.source : language === "sql" ? /--[^\n]*/.source : SLASH;
  const pattern = new RegExp(`(${comment})|(${COMMON[0]})|(${COMMON[1]})|(${COMMON[2]})`, "g");
  const found = [];
  let last = 0;
  for (const match of text.matchAll(pattern)) {
    const kind = match[1] ? "comment" : match[2] ? "string" : match[3] ? "literal" : WORDS.has(match[4]) ? "word" : null;
    if (!kind) continue;
    found.push(text.slice(last, match.index), h("span", { class: `code-${kind}` }, match[0]));
    last = match.index + match[0].length;
  }
  found.push(text.slice(last));
  return found.filter((each) => each !== "");
}
