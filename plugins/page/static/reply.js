// Runs a request, and collects its stream as a message of the assistant.

import { events } from "./server.js";

/** Return an empty message of the assistant. */
export function newReply() {
  return { role: "assistant", content: "", reasoning: "", calls: [], tokens: [], figures: {}, finish: "", error: "", id: "", versions: [] };
}

/**
 * Fill a message with the reply to a request. Errors become its `error`.
 * @param {object} message as of `newReply`.
 * @param {object} request as of `requestOf`.
 * @param {function} onchange called after each event; with a text while the request waits.
 * @param {AbortSignal} signal stops the request.
 */
export async function run(message, { path, body }, onchange, signal) {
  const started = performance.now();
  let first = 0;
  let last = 0;
  try {
    for await (const event of events(path, { json: body, signal })) {
      if (event.comment) {
        onchange(event.comment);
        continue;
      }
      message.id ||= event.id ?? "";
      if (event.usage) note(message.figures, event.usage);
      for (const choice of event.choices ?? []) {
        if (take(message, choice)) {
          last = performance.now();
          first ||= last;
        }
      }
      onchange();
    }
  } catch (error) {
    if (signal.aborted) message.finish ||= "stopped";
    else message.error = error.message;
  }
  if (first) message.figures.first_ms = first - started;
  const num = message.figures.output_tokens ?? 0;
  if (num > 1 && last > first) message.figures.per_second = ((num - 1) * 1000) / (last - first);
  onchange();
}

function note(figures, usage) {
  figures.prompt_tokens = usage.prompt_tokens;
  figures.output_tokens = usage.completion_tokens;
  figures.cached_tokens = usage.prompt_tokens_details?.cached_tokens ?? 0;
}

/** Add a choice of an event to a message; return whether it had text, reasoning or calls. */
function take(message, choice) {
  const delta = choice.delta ?? { content: choice.text };
  message.content += delta.content ?? "";
  const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
  message.reasoning += reasoning;
  for (const call of delta.tool_calls ?? []) takeCall(message.calls, call);
  message.tokens.push(...tokensOf(choice.logprobs));
  message.finish = choice.finish_reason ?? message.finish;
  return Boolean(delta.content || reasoning || delta.tool_calls?.length);
}

function takeCall(calls, delta) {
  const call = (calls[delta.index ?? 0] ??= { id: "", name: "", arguments: "" });
  call.id ||= delta.id ?? "";
  call.name += delta.function?.name ?? "";
  call.arguments += delta.function?.arguments ?? "";
}

/** Return the tokens of log probabilities, in the form of chats or of completions. */
function tokensOf(logprobs) {
  if (!logprobs) return [];
  if (logprobs.content) {
    return logprobs.content.map(({ token, logprob, top_logprobs }) => ({
      token, logprob, others: (top_logprobs ?? []).map((each) => ({ token: each.token, logprob: each.logprob })),
    }));
  }
  return (logprobs.tokens ?? []).map((token, i) => ({
    token,
    logprob: logprobs.token_logprobs[i] ?? 0,
    others: Object.entries(logprobs.top_logprobs?.[i] ?? {})
      .map(([other, logprob]) => ({ token: other, logprob }))
      .sort((a, b) => b.logprob - a.logprob),
  }));
}
