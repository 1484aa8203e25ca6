// Small charts: a line over the last minutes, and a histogram.

import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 120;

/** A figure with its name and a line of its last values. */
export class Figure {
  /**
   * @param {string} title what it is.
   * @param {function} format returns a value as text.
   * @param {number} top value at the top of the line; 0: the largest value.
   */
  constructor(title, format, top = 0) {
    this.format = format;
    this.top = top;
    this.values = [];
    this.value = h("span", { class: "value" }, "–");
    this.line = svg("polyline", { fill: "none", "vector-effect": "non-scaling-stroke" });
    this.element = h("div", { class: "figure" },
      h("span", { class: "soft" }, title), this.value,
      svg("svg", { viewBox: `0 0 ${POINTS} 32`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.line));
  }

  /** Add a value. */
  add(value, note = "") {
    this.values.push(value);
    if (this.values.length > POINTS) this.values.shift();
    this.value.textContent = this.format(value) + note;
    const top = this.top || Math.max(...this.values) || 1;
    const start = POINTS - this.values.length;
    this.line.setAttribute("points", this.values.map((each, i) => `${start + i},${(31 - (each / top) * 29).toFixed(1)}`).join(" "));
  }
}

/** A histogram of durations. */
export class Histogram {
  constructor(title) {
    this.bars = h("div", { class: "bars", role: "img" });
    this.note = h("span", { class: "soft" });
    this.element = h("div", { class: "histogram" }, h("h3", {}, title), this.bars, this.note);
  }

  /**
   * Show counts.
   * @param {number[]} bounds upper bounds in seconds.
   * @param {number[]} counts one more than bounds.
   */
  show(bounds, counts) {
    const num = counts.reduce((sum, each) => sum + each, 0);
    if (!num) {
      this.bars.replaceChildren();
      this.note.textContent = "nothing yet";
      return;
    }
    const first = counts.findIndex(Boolean);
    const last = counts.findLastIndex(Boolean);
    const most = Math.max(...counts);
    this.bars.replaceChildren(...counts.slice(first, last + 1).map((count, i) => {
      const bar = h("span", { title: `up to ${seconds(bounds[first + i])}: ${count.toLocaleString("en")}` });
      bar.style.setProperty("--high", `${(count / most) * 100}%`);
      return bar;
    }));
    const middle = quantile(bounds, counts, 0.5);
    const slow = quantile(bounds, counts, 0.99);
    this.note.textContent = `${num.toLocaleString("en")}; half within ${seconds(middle)}, 99 % within ${seconds(slow)}`;
    this.bars.setAttribute("aria-label", this.note.textContent);
  }
}

/** Return the least bound below which a share of the counted durations is. */
export function quantile(bounds, counts, share) {
  const wanted = counts.reduce((sum, each) => sum + each, 0) * share;
  let sum = 0;
  return bounds[counts.findIndex((count) => (sum += count) >= wanted)] ?? Infinity;
}

/** Return a duration as text. */
export function seconds(value) {
  if (value === undefined || value === Infinity) return "more";
  return value < 1 ? `${+(value * 1000).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`;
}

function svg(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
