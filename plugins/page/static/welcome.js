// The first view: what is served, and where to go on.

import { whenKnown } from "./about.js";
import { fill, h } from "./dom.js";
import { ROOT } from "./server.js";

/** Return the view. */
export function welcome() {
  const model = h("p", { class: "soft" });
  whenKnown((known) => fill(model, `${known.id}, ${known.max_model_len?.toLocaleString("en")} tokens of context`));
  return {
    element: h("section", { class: "empty stack" },
      h("h1", {}, "This server is ready"),
      model,
      h("p", {}, "OpenAI clients use ", h("code", { class: "mono" }, new URL("v1", ROOT).href)),
    ),
  };
}
