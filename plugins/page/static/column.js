// A column of a conversation: its messages as they are, and the request that runs.

import { fill, h } from "./dom.js";
import { editView, messageView, refresh } from "./message.js";
import { newReply, run } from "./reply.js";
import { parsed, requestOf } from "./request.js";
import { showSnippets } from "./snippets.js";
import { TextEditor } from "./text_editor.js";

const FRAME_MS = 50; // between two views of a text that grows

/** Shows one column, and runs its requests. */
export class Column {
  /**
   * @param {object} data the column, as of `newColumn`, which this changes.
   * @param {function} onchange called when the data or whether it runs has changed.
   * @param {function} story called with the id of a reply to tell its story.
   */
  constructor(data, onchange, story) {
    this.data = data;
    this.running = null;
    this.onchange = onchange;
    this.story = story;
    this.list = h("div", { class: "messages", "aria-live": "off" });
    this.editor = new TextEditor(data, this);
    this.element = h("section", { class: "column" });
    this.draw();
  }

  /** Whether a request runs. */
  get isRunning() {
    return this.running !== null;
  }

  /** Send a message of the user. */
  send(content) {
    this.data.messages.push({ role: "user", content });
    return this.reply();
  }

  /** Stop the request that runs. */
  stop() {
    this.running?.abort();
  }

  /** Run a request, and fill a message with its reply. */
  async run(message, show) {
    let request;
    try {
      request = requestOf({ ...this.data, messages: this.data.messages.filter((each) => each !== message) });
    } catch (error) {
      message.error = error.message;
      show("");
      return;
    }
    const running = (this.running = new AbortController());
    this.onchange();
    show("");
    let shown = 0;
    let timer = 0;
    const draw = (wait = "") => {
      clearTimeout(timer);
      const left = shown + FRAME_MS - performance.now();
      if (left > 0) timer = setTimeout(() => draw(wait), left);
      else {
        shown = performance.now();
        show(wait);
      }
    };
    await run(message, request, draw, running.signal);
    clearTimeout(timer);
    this.running = null;
    show("");
    this.onchange();
  }

  /** Show everything anew. */
  draw() {
    if (this.data.settings.mode === "text") {
      fill(this.element, this.editor.element);
      this.editor.draw();
      return;
    }
    fill(this.element, this.list);
    const { messages } = this.data;
    if (messages.length) fill(this.list, messages.map((message, i) => messageView(message, this.context(i))));
    else fill(this.list, h("div", { class: "empty" }, h("p", {}, "Ask the model something.")));
  }

  /** Scroll to the end if that was in view. */
  follow(isForced = false) {
    const { element } = this;
    if (isForced || element.scrollHeight - element.scrollTop - element.clientHeight < 160) element.scrollTop = element.scrollHeight;
  }

  async reply(versions = []) {
    const message = Object.assign(newReply(), { versions });
    this.data.messages.push(message);
    const place = this.data.messages.length - 1;
    let isDrawn = false;
    await this.run(message, (wait) => {
      if (!isDrawn) {
        isDrawn = true;
        this.draw();
        this.follow(true);
      }
      const element = this.list.children[place];
      if (element) refresh(element, message, { ...this.context(place), wait, isRunning: this.isRunning });
      this.follow();
    });
    this.draw();
    this.follow();
  }

  context(i) {
    const { messages, settings } = this.data;
    const isLast = i === messages.length - 1;
    const isIdle = !this.isRunning;
    const message = messages[i];
    let schema = null;
    try {
      schema = parsed(settings.schema, "");
    } catch {
      // The settings show what is wrong with it.
    }
    return {
      schema,
      showsTokens: settings.tokens,
      isRunning: isLast && this.isRunning,
      edit: isIdle ? () => this.edit(i) : null,
      again: isIdle && isLast ? () => this.again() : null,
      version: isIdle && isLast ? (place) => this.choose(place) : null,
      send: isIdle && isLast && message.calls?.length ? (results) => this.answer(message.calls, results) : null,
      story: this.story,
      code: () => showSnippets(requestOf({ ...this.data, messages: messages.slice(0, i) })),
    };
  }

  edit(i) {
    const element = this.list.children[i];
    element.replaceWith(editView(this.data.messages[i], (content) => {
      this.data.messages.length = i;
      this.send(content);
    }, () => this.draw()));
  }

  again() {
    const last = this.data.messages.pop();
    this.reply(all(last));
  }

  /** Show another version of the last reply. */
  choose(place) {
    const versions = all(this.data.messages.pop());
    const [chosen] = versions.splice(place, 1);
    this.data.messages.push({ ...chosen, versions, place });
    this.draw();
    this.onchange();
  }

  answer(calls, results) {
    calls.forEach((call, i) => this.data.messages.push({ role: "tool", content: results[i], tool_call_id: call.id }));
    this.reply();
  }
}

/** Return all versions of a reply, in the order in which they were made. */
function all(message) {
  const { versions, place = versions.length, ...own } = message;
  const found = versions.map((each) => ({ ...each, versions: [] }));
  found.splice(place, 0, { ...own, versions: [] });
  return found;
}
