// A conversation as plain data: columns with messages and settings. Two columns get the same questions.

/** Return the settings of a new column. */
export function newSettings() {
  return { mode: "chat", system: "", parameters: {}, thinking: "", tokens: false, tools: "", schema: "" };
}

/** Return a new column. `text` and `reply` are those of the mode that continues a text. */
export function newColumn(settings = newSettings()) {
  return { settings, messages: [], text: "", reply: null };
}

/** Return a new conversation. */
export function newConversation() {
  return { id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, changed: Date.now(), columns: [newColumn()] };
}

/** Return the title of a conversation: the start of its first question. */
export function titleOf(conversation) {
  const column = conversation.columns[0];
  const first = column.settings.mode === "chat" ? column.messages.find((each) => each.role === "user")?.content : column.text;
  return (first ?? "").trim().replace(/\s+/g, " ").slice(0, 60) || "New conversation";
}

/**
 * Return a conversation from decoded JSON, such as an exported file, with nothing in it that the page does not know.
 * Throws an Error if it is none.
 */
export function conversationOf(value) {
  if (!Array.isArray(value?.columns) || !value.columns.length) throw new Error("it has no conversation with columns");
  return {
    ...newConversation(),
    ...(typeof value.id === "string" && { id: value.id.slice(0, 100) }),
    ...(Number.isFinite(value.changed) && { changed: value.changed }),
    columns: value.columns.slice(0, 2).map(columnOf),
  };
}

function columnOf(value) {
  const messages = Array.isArray(value?.messages) ? value.messages.map(messageOf) : [];
  return {
    settings: settingsOf(value?.settings ?? {}),
    messages,
    text: textOf(value?.text),
    reply: value?.reply ? messageOf({ ...value.reply, role: "assistant" }) : null,
  };
}

function settingsOf(value) {
  const found = newSettings();
  for (const name of ["system", "thinking", "tools", "schema"]) found[name] = textOf(value[name]);
  found.mode = value.mode === "text" ? "text" : "chat";
  found.tokens = value.tokens === true;
  for (const [name, each] of Object.entries(value.parameters ?? {})) {
    if (Number.isFinite(each)) found.parameters[name] = each;
    else if (name === "stop" && Array.isArray(each)) found.parameters.stop = each.map(textOf);
  }
  return found;
}

function messageOf(value) {
  if (!["user", "assistant", "tool"].includes(value?.role)) throw new Error(`it has a message of the role ${value?.role}`);
  const found = { role: value.role, content: textOf(value.content) };
  if (value.role === "tool") return { ...found, tool_call_id: textOf(value.tool_call_id) };
  if (value.role === "user") return found;
  return {
    ...found,
    reasoning: textOf(value.reasoning),
    calls: Array.isArray(value.calls) ? value.calls.map((call) => ({ id: textOf(call?.id), name: textOf(call?.name), arguments: textOf(call?.arguments) })) : [],
    tokens: Array.isArray(value.tokens) ? value.tokens.map(tokenOf) : [],
    figures: Object.fromEntries(Object.entries(value.figures ?? {}).filter(([, each]) => Number.isFinite(each))),
    finish: textOf(value.finish),
    error: textOf(value.error),
    id: textOf(value.id),
    versions: Array.isArray(value.versions) ? value.versions.map((each) => messageOf({ ...each, versions: [] })) : [],
  };
}

function tokenOf(value) {
  return {
    token: textOf(value?.token),
    logprob: Number(value?.logprob) || 0,
    others: Array.isArray(value?.others) ? value.others.map((each) => ({ token: textOf(each?.token), logprob: Number(each?.logprob) || 0 })) : [],
  };
}

function textOf(value) {
  return typeof value === "string" ? value : "";
}
