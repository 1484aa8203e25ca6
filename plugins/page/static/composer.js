// The field for the next message. Enter sends it, Shift+Enter starts a new line.

import { button, h } from "./dom.js";

/** Return { element, focus, draw }: the field, and a function that shows whether a request runs. */
export function composer(send, stop) {
  const field = h("textarea", {
    class: "composer-field", rows: 1, placeholder: "Message", "aria-label": "Message",
    oninput: grow,
    onkeydown: (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      submit();
    },
  });
  const sending = h("button", { class: "main", type: "submit" }, "Send");
  const stopping = button("Stop", stop, { hidden: true });
  const element = h("form", {
    class: "composer",
    onsubmit: (event) => {
      event.preventDefault();
      submit();
    },
  }, field, sending, stopping);

  function submit() {
    if (!field.value.trim() || sending.hidden) return;
    const text = field.value;
    field.value = "";
    grow();
    send(text);
  }

  function grow() {
    field.rows = Math.min(10, field.value.split("\n").length);
  }

  return {
    element,
    focus: () => field.focus(),
    draw(isRunning) {
      sending.hidden = isRunning;
      stopping.hidden = !isRunning;
    },
  };
}
