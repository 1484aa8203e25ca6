// The mode that continues a text: the text, and how the model would go on.

import { button, fill, h } from "./dom.js";
import { messageView } from "./message.js";
import { newReply } from "./reply.js";
import { requestOf } from "./request.js";
import { showSnippets } from "./snippets.js";

/** Shows a text to continue. */
export class TextEditor {
  /**
   * @param {object} data the column's data: `text` and `reply`.
   * @param {Column} column runs the requests.
   */
  constructor(data, column) {
    this.data = data;
    this.column = column;
    this.field = h("textarea", {
      class: "prompt", rows: 8, "aria-label": "Text to continue", placeholder: "Once upon a time",
      oninput: () => {
        data.text = this.field.value;
        column.onchange();
      },
    });
    this.output = h("div", {});
    this.actions = h("div", { class: "row" });
    this.element = h("div", { class: "text-editor stack" }, this.field, this.actions, this.output);
  }

  /** Show everything anew. */
  draw(wait = "") {
    const { data, column } = this;
    if (this.field.value !== data.text) this.field.value = data.text;
    fill(this.actions,
      column.isRunning
        ? button("Stop", () => column.stop())
        : button("Continue", () => this.run(), { class: "main" }),
      data.reply?.content && !column.isRunning && button("Add to the text", () => this.adopt()),
    );
    fill(this.output, data.reply && messageView(data.reply, {
      wait,
      isRunning: column.isRunning,
      showsTokens: data.settings.tokens,
      story: column.story,
      code: () => showSnippets(requestOf(data)),
    }));
  }

  async run() {
    this.data.reply = newReply();
    await this.column.run(this.data.reply, (wait) => this.draw(wait));
    this.draw();
  }

  adopt() {
    this.data.text += this.data.reply.content;
    this.data.reply = null;
    this.draw();
    this.column.onchange();
    this.field.focus();
  }
}
