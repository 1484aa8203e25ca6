// Histograms of the route /metrics, in Prometheus' format.

import { ask } from "./server.js";

/** Return { bounds, counts } of a histogram, over all its labels; null if the server has none. */
export async function histogramOf(name) {
  const text = await (await ask("metrics")).text();
  return parse(text, name);
}

/** Return { bounds, counts } of a histogram in a text. */
export function parse(text, name) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    if (!line.startsWith(`${name}_bucket{`)) continue;
    const bound = /[{,]le="([^"]+)"/.exec(line)?.[1];
    const value = Number(line.slice(line.lastIndexOf("}") + 1).trim().split(" ")[0]);
    const key = bound === "+Inf" ? Infinity : Number(bound);
    sums.set(key, (sums.get(key) ?? 0) + value);
  }
  if (!sums.size) return null;
  const sorted = [...sums].sort(([a], [b]) => a - b);
  return {
    bounds: sorted.map(([bound]) => bound).filter(Number.isFinite),
    counts: sorted.map(([, count], i) => count - (i ? sorted[i - 1][1] : 0)),
  };
}
