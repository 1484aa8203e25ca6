// The server that this page came from: requests with the user's key, and streams of events.

import { authorization } from "./key.js";

/** Root of the server, also below a proxy's path. */
export const ROOT = new URL("../", import.meta.url);

/** A reply that is not a success. */
export class ServerError extends Error {
  constructor(status, message, code = null) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/**
 * Send a request and return its reply.
 * @param {string} path such as "v1/models".
 * @param {object} options those of `fetch`; `json` is a body to send as JSON.
 */
export async function ask(path, { json, headers = {}, ...options } = {}) {
  const all = { ...authorization(), ...headers };
  if (json !== undefined) {
    all["content-type"] = "application/json";
    options = { method: "POST", body: JSON.stringify(json), ...options };
  }
  const reply = await fetch(new URL(path, ROOT), { ...options, headers: all, credentials: "omit" });
  if (!reply.ok) throw await failure(reply);
  return reply;
}

/** Send a request and return its decoded JSON reply. */
export async function askJSON(path, options) {
  return (await ask(path, options)).json();
}

/** Send a request, and yield the data of its server-sent events. A comment yields { comment }. */
export async function* events(path, options) {
  const reply = await ask(path, options);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) {
        if (frame.startsWith(":")) yield { comment: frame.slice(1).trim() };
        const data = frame.split("\n").filter((line) => line.startsWith("data:"));
        if (!data.length) continue;
        const text = data.map((line) => line.slice(5).trimStart()).join("\n");
        if (text === "[DONE]") return;
        const decoded = JSON.parse(text);
        if (decoded.error) throw new ServerError(reply.status, decoded.error.message, decoded.error.code);
        yield decoded;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function failure(reply) {
  const text = await reply.text();
  try {
    const { error } = JSON.parse(text);
    return new ServerError(reply.status, error.message ?? String(error), error.code ?? null);
  } catch {
    return new ServerError(reply.status, text.slice(0, 300) || `the server replied ${reply.status}`);
  }
}
