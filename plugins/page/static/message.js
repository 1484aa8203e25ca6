// The view of one message: text, thinking, calls, tokens, and figures below it.

import { button, copy, fill, h } from "./dom.js";
import { callsView } from "./calls.js";
import { fitView } from "./fit.js";
import { markdown } from "./markdown.js";
import { tokenView } from "./tokens.js";

const ROLES = { user: "You", assistant: "Model", tool: "Tool" };

/**
 * Return the view of a message.
 * @param {object} message the message.
 * @param {object} context `isRunning`, `wait` (a text while it waits), `schema`, and the actions `edit`, `again`,
 *   `version`, `send` and `story`; actions that are not possible now are null.
 */
export function messageView(message, context = {}) {
  return h("article", { class: `message ${message.role}`, "aria-label": ROLES[message.role] },
    h("h2", { class: "who" }, ROLES[message.role]),
    message.role === "assistant" ? replyBody(message, context) : h("div", { class: "text plain" }, message.content),
    message.role === "user" && context.edit && userActions(message, context),
  );
}

/** Return a text area in place of a message of the user. */
export function editView(message, done, cancel) {
  const field = h("textarea", { rows: Math.min(12, message.content.split("\n").length + 1), value: message.content, "aria-label": "Edit the message" });
  queueMicrotask(() => field.focus());
  return h("article", { class: "message user editing" },
    field,
    h("div", { class: "row" }, button("Cancel", cancel), button("Send", () => done(field.value), { class: "main" })),
  );
}

function userActions(message, { edit }) {
  return h("div", { class: "row actions" }, button("Edit", edit, { class: "quiet" }), button("Copy", () => copy(message.content), { class: "quiet" }));
}

function replyBody(message, context) {
  const { isRunning = false, wait = "", schema = null, send = null } = context;
  const isBlank = isRunning && !message.content && !message.reasoning && !message.calls.length;
  return [
    message.reasoning && thinking(message, isRunning),
    isBlank ? h("p", { class: "soft pulse" }, wait || "Waiting for the first token") : text(message, context),
    schema && message.content && fitView(message.content, schema, !isRunning),
    message.calls.length > 0 && callsView(message.calls, isRunning ? null : send),
    message.error && h("p", { class: "problem", role: "alert" }, message.error),
    !isRunning && footer(message, context),
  ];
}

function text(message, { isRunning, showsTokens }) {
  if (showsTokens && message.tokens.length && !isRunning) return tokenView(message.tokens);
  return h("div", { class: "text" }, markdown(message.content));
}

function thinking(message, isRunning) {
  const isOpen = isRunning && !message.content;
  return h("details", { class: "thinking", open: isOpen },
    h("summary", {}, isOpen ? "Thinking" : "Thought"),
    h("div", { class: "plain" }, message.reasoning.trim()),
  );
}

function footer(message, { again, version, story, code }) {
  const num = message.versions.length + 1;
  const place = message.place ?? num - 1;
  return h("div", { class: "footer" },
    h("p", { class: "figures" }, figures(message).map((each) => h("span", {}, each))),
    h("div", { class: "row actions" },
      num > 1 && version && [
        button("‹", () => version(place - 1), { class: "quiet", disabled: place === 0, "aria-label": "Earlier reply" }),
        h("span", { class: "soft" }, `${place + 1} of ${num}`),
        button("›", () => version(place + 1), { class: "quiet", disabled: place === num - 1, "aria-label": "Later reply" }),
      ],
      message.content && button("Copy", () => copy(message.content), { class: "quiet" }),
      again && button("Again", again, { class: "quiet", title: "Generate another reply" }),
      code && button("Code", code, { class: "quiet", title: "This request as curl, Python and Node" }),
      story && message.id && button("Why so long?", () => story(message.id), { class: "quiet", title: "What the scheduler decided" }),
    ),
  );
}

function figures({ figures: known, finish }) {
  const found = [];
  if (known.prompt_tokens) found.push(`${known.prompt_tokens} tokens in, ${known.cached_tokens ?? 0} cached`);
  if (known.output_tokens) found.push(`${known.output_tokens} out`);
  if (known.first_ms) found.push(`${known.first_ms.toFixed(0)} ms to the first`);
  if (known.per_second) found.push(`${known.per_second.toFixed(known.per_second < 10 ? 1 : 0)} tokens/s`);
  if (finish && finish !== "stop") found.push(finish === "length" ? "cut off by the limit" : finish === "tool_calls" ? "wants tools" : finish);
  return found;
}

/** Replace the view of a message by a current one. */
export function refresh(element, message, context) {
  const made = messageView(message, context);
  const was = element.querySelector("details.thinking");
  const now = made.querySelector("details.thinking");
  if (was?.dataset.touched && now) Object.assign(now, { open: was.open }).dataset.touched = "yes";
  now?.querySelector("summary").addEventListener("click", () => (now.dataset.touched = "yes"));
  fill(element, ...made.childNodes);
}
