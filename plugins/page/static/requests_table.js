// The requests that run and wait, as a table: what the picture of the batch shows, for keyboards and screen readers, too.

import { button, fill, h } from "./dom.js";

const MOST = 8; // of each kind

/** Return { element, show }. `onchoose` is called with a request that was chosen. */
export function requestsTable(onchoose) {
  const body = h("tbody", {});
  const rest = h("p", { class: "soft" });

  function show({ running, waiting, numWaiting }) {
    const rows = [...running.slice(0, MOST).map((each) => row(each, true)), ...waiting.slice(0, MOST).map((each) => row(each, false))];
    fill(body, rows.length ? rows : h("tr", {}, h("td", { colspan: 5, class: "soft" }, "Nothing runs.")));
    const left = Math.max(0, running.length - MOST) + Math.max(0, numWaiting - Math.min(waiting.length, MOST));
    rest.textContent = left ? `and ${left} more` : "";
  }

  function row(request, runs) {
    const state = !runs ? `waits: ${request.reason}` : request.numComputed < request.promptTokens ? "computes its prompt" : "generates";
    return h("tr", {},
      h("td", { class: "mono" }, button(short(request.id), () => onchoose(request), { class: "quiet", title: "What happened to it" })),
      h("td", {}, state, request.isDeferrable ? " (batch)" : ""),
      h("td", {}, request.tenant),
      h("td", { class: "number" }, request.promptTokens),
      h("td", { class: "number" }, Math.max(0, request.numTokens - request.promptTokens)),
    );
  }

  const heads = ["Request", "State", "Tenant"].map((title) => h("th", { scope: "col" }, title));
  const numbers = ["Prompt", "Output"].map((title) => h("th", { scope: "col", class: "number" }, title));
  return {
    show,
    element: h("div", { class: "scroll" }, h("table", { class: "requests" }, h("thead", {}, h("tr", {}, heads, numbers)), body), rest),
  };
}

/** Return the part of an id that tells requests apart. */
function short(id) {
  return id.slice(id.indexOf("-") + 1).slice(0, 10);
}
