// The request that a column's settings and messages make.

import { model } from "./about.js";

const NUM_OTHERS = 5; // alternatives of each token

/** Return { path, body } of a column's next request. Throws an Error if tools or schema are not JSON. */
export function requestOf({ settings, messages, text }) {
  const common = { model: model?.id, ...settings.parameters, stream: true, stream_options: { include_usage: true } };
  if (settings.mode === "text") {
    return { path: "v1/completions", body: { ...common, prompt: text, ...(settings.tokens && { logprobs: NUM_OTHERS }) } };
  }
  const body = { ...common, messages: [...system(settings.system), ...messages.map(sent)] };
  if (settings.tokens) Object.assign(body, { logprobs: true, top_logprobs: NUM_OTHERS });
  if (settings.thinking) body.chat_template_kwargs = { enable_thinking: settings.thinking === "on" };
  const tools = parsed(settings.tools, "The tools");
  if (tools) body.tools = [tools].flat().map((tool) => (tool.type ? tool : { type: "function", function: tool }));
  const schema = parsed(settings.schema, "The schema");
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "reply", schema, strict: true } };
  return { path: "v1/chat/completions", body };
}

/** Return decoded JSON; null for an empty text. Throws an Error that says where it is wrong. */
export function parsed(text, what) {
  if (!text.trim()) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what}: ${error.message}`);
  }
}

function system(text) {
  return text.trim() ? [{ role: "system", content: text }] : [];
}

function sent({ role, content, calls, tool_call_id }) {
  if (role === "tool") return { role, content, tool_call_id };
  if (!calls?.length) return { role, content };
  const tool_calls = calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.arguments } }));
  return { role, content: content || null, tool_calls };
}
