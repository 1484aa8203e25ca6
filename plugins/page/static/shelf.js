// The conversations that this browser keeps, newest first.

import { notify } from "./dom.js";
import { conversationOf } from "./conversation.js";

const PREFIX = "llmfw.conversation.";
const NEWEST = 200; // conversations

/** Return all kept conversations. Those that cannot be read are left out. */
export function kept() {
  const found = [];
  for (const name of Object.keys(localStorage).filter((each) => each.startsWith(PREFIX))) {
    try {
      found.push(conversationOf(JSON.parse(localStorage.getItem(name))));
    } catch {
      console.info(`${name} cannot be read`);
    }
  }
  return found.sort((a, b) => b.changed - a.changed);
}

/** Keep a conversation, and forget the oldest beyond a bound. */
export function keep(conversation) {
  conversation.changed = Date.now();
  try {
    localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    for (const old of kept().slice(NEWEST)) forget(old);
  } catch {
    notify("The browser has no more room for conversations: export and delete some");
  }
}

/** Forget a conversation. */
export function forget(conversation) {
  localStorage.removeItem(PREFIX + conversation.id);
}

/** Return conversations as the text of a file. */
export function exported(conversations) {
  return JSON.stringify({ format: "llmfw-conversations", version: 1, conversations }, null, 1);
}

/** Keep the conversations of an exported file; return them. Throws an Error if the text is no such file. */
export function imported(text) {
  const value = JSON.parse(text);
  if (value?.format !== "llmfw-conversations" || !Array.isArray(value.conversations)) {
    throw new Error("it is not a file of exported conversations");
  }
  const found = value.conversations.map(conversationOf);
  found.forEach(keep);
  return found;
}
