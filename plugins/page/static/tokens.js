// A reply token by token: the less likely a token was, the stronger its color. Its alternatives are in a box beside it.

import { fill, h } from "./dom.js";

const LEVELS = [0.9, 0.6, 0.3, 0.1]; // probabilities from which a token has the next lighter color

/** Return the view of a list of { token, logprob, others }. */
export function tokenView(tokens) {
  const box = h("div", { class: "alternatives", hidden: true, role: "status" });
  const shown = tokens.map((each, i) =>
    h("span", { class: `token level-${level(each)}`, role: "img", tabindex: i ? "-1" : "0", dataset: { place: i }, "aria-label": described(each) }, visible(each.token)));
  const text = h("div", { class: "tokens mono" }, shown);
  const show = (event) => {
    const place = event.target.dataset?.place;
    if (place === undefined) return;
    fill(box, alternatives(tokens[place]));
    box.hidden = false;
  };
  text.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) shown[Number(event.target.dataset.place) + step]?.focus();
  });
  text.addEventListener("pointerover", show);
  text.addEventListener("focusin", show);
  text.addEventListener("click", show);
  return h("div", { class: "token-view" }, legend(tokens), text, box);
}

/** Return the mean entropy of tokens in bits, of the alternatives that are known. */
export function entropyOf({ others }) {
  return others.reduce((sum, { logprob }) => sum - (Math.exp(logprob) * logprob) / Math.LN2, 0);
}

function legend(tokens) {
  const mean = tokens.reduce((sum, each) => sum + entropyOf(each), 0) / Math.max(1, tokens.length);
  return h("p", { class: "soft" }, `${tokens.length} tokens, ${mean.toFixed(2)} bits of entropy each. Point at a token, or move by the arrow keys, for its alternatives.`);
}

function alternatives(token) {
  const isListed = token.others.some((each) => each.token === token.token);
  const all = isListed ? token.others : [token, ...token.others];
  return [
    h("p", { class: "soft" }, `${entropyOf(token).toFixed(2)} bits`),
    h("ul", {}, all.map((each) => {
      const share = Math.exp(each.logprob);
      return h("li", { class: each.token === token.token ? "chosen" : null },
        h("span", { class: "mono" }, visible(each.token)),
        h("meter", { min: 0, max: 1, value: share }),
        h("span", { class: "number" }, percent(share)),
      );
    })),
  ];
}

function level({ logprob }) {
  const share = Math.exp(logprob);
  const found = LEVELS.findIndex((least) => share >= least);
  return found < 0 ? LEVELS.length : found;
}

function described(each) {
  return `${visible(each.token)}, ${percent(Math.exp(each.logprob))}`;
}

function percent(share) {
  return share >= 0.0995 ? `${(share * 100).toFixed(0)} %` : share >= 0.001 ? `${(share * 100).toFixed(1)} %` : "< 0.1 %";
}

function visible(token) {
  return token.replaceAll("\n", "↵\n").replaceAll("\t", "⇥") || "∅";
}
