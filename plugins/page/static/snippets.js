// A request as code that sends the same: curl, Python and Node.

import { codeBlock } from "./code.js";
import { button, fill, h } from "./dom.js";
import { ROOT } from "./server.js";

const WRITERS = {
  curl: ["bash", curl],
  Python: ["python", python],
  Node: ["js", node],
};

/** Open a dialog with a request in all languages. */
export function showSnippets({ path, body }) {
  const { stream, stream_options, ...plain } = body;
  const code = h("div", {});
  const tabs = Object.entries(WRITERS).map(([name, [language, write]]) => {
    const tab = button(name, () => {
      tabs.forEach((each) => each.setAttribute("aria-pressed", String(each === tab)));
      fill(code, codeBlock(write(path, plain), language));
    }, { class: "quiet" });
    return tab;
  });
  const dialog = h("dialog", { class: "wide snippets", "aria-labelledby": "snippet-title", onclose: () => dialog.remove() },
    h("div", { class: "stack" },
      h("h2", { id: "snippet-title" }, "This request as code"),
      h("div", { class: "row tabs" }, tabs),
      code,
      h("div", { class: "row" }, button("Close", () => dialog.close(), { class: "main" })),
    ),
  );
  document.body.append(dialog);
  tabs[0].click();
  dialog.showModal();
}

/** Return a command for a shell. */
export function curl(path, body) {
  const text = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl ${new URL(path, ROOT)} \\\n  -H "content-type: application/json" \\\n  -H "authorization: Bearer $OPENAI_API_KEY" \\\n  -d '${text}'\n`;
}

/** Return a program in Python, with OpenAI's SDK. Fields that the SDK does not know go into extra_body. */
export function python(path, body) {
  const [method, known, extra] = split(path, body);
  const lines = Object.entries(known).map(([name, value]) => `    ${name}=${pythonOf(value, 1)},`);
  if (Object.keys(extra).length) lines.push(`    extra_body=${pythonOf(extra, 1)},`);
  const shown = path.includes("chat") ? "reply.choices[0].message" : "reply.choices[0].text";
  return `from openai import OpenAI\n\nclient = OpenAI(base_url="${new URL("v1", ROOT)}", api_key="KEY")\nreply = client.${method}.create(\n${lines.join("\n")}\n)\nprint(${shown})\n`;
}

/** Return a program for Node, with OpenAI's SDK, which sends all fields. */
export function node(path, body) {
  const method = path.includes("chat") ? "chat.completions" : "completions";
  const shown = path.includes("chat") ? "reply.choices[0].message" : "reply.choices[0].text";
  return `import OpenAI from "openai";\n\nconst client = new OpenAI({ baseURL: "${new URL("v1", ROOT)}", apiKey: "KEY" });\nconst reply = await client.${method}.create(${JSON.stringify(body, null, 2)});\nconsole.log(${shown});\n`;
}

const EXTRA = new Set(["top_k", "min_p", "min_tokens", "repetition_penalty", "priority", "chat_template_kwargs"]);

function split(path, body) {
  const entries = Object.entries(body).filter(([, value]) => value !== undefined);
  return [
    path.includes("chat") ? "chat.completions" : "completions",
    Object.fromEntries(entries.filter(([name]) => !EXTRA.has(name))),
    Object.fromEntries(entries.filter(([name]) => EXTRA.has(name))),
  ];
}

function pythonOf(value, depth) {
  const inner = "    ".repeat(depth + 1);
  const outer = "    ".repeat(depth);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const isList = Array.isArray(value);
  const parts = isList
    ? value.map((each) => `${inner}${pythonOf(each, depth + 1)},`)
    : Object.entries(value).map(([name, each]) => `${inner}${JSON.stringify(name)}: ${pythonOf(each, depth + 1)},`);
  const [open, close] = isList ? "[]" : "{}";
  return parts.length ? `${open}\n${parts.join("\n")}\n${outer}${close}` : open + close;
}
