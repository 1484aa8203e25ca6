// The batch, drawn: a lane for each request, a column for each step, the newest at the right.

import { h } from "./dom.js";

const CELL = 7; // pixels of a step
const LEAST_ROW = 2;
const MOST_ROW = 18;

/** Draws a history on a canvas. */
export class Lanes {
  /**
   * @param {History} history what to draw.
   * @param {function} onpoint called with the request under the pointer, or null, and the event.
   * @param {function} onchoose called with a request that was clicked.
   */
  constructor(history, onpoint, onchoose) {
    this.history = history;
    this.back = 0; // steps by which the view is scrolled back
    this.frozen = null; // number of the last step that is shown while the view is paused
    const find = (event) => this.find(event.offsetX, event.offsetY);
    this.canvas = h("canvas", {
      class: "lanes", role: "img", "aria-label": "The batch, step by step. The table below lists the same requests.",
      onpointermove: (event) => onpoint(find(event), event),
      onpointerleave: (event) => onpoint(null, event),
      onclick: (event) => {
        const found = find(event);
        if (found) onchoose(found);
      },
    });
    this.size = { width: 0, height: 0, row: 0, ratio: 0 };
    this.colors = {};
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Stop at the newest step, or go on. */
  pause(isPaused) {
    this.frozen = isPaused ? (this.history.steps.at(-1)?.number ?? 0) : null;
    this.back = 0;
    this.draw();
  }

  /** Draw everything, or only the steps that are new since the last drawing. */
  draw(numNew = Infinity) {
    const { canvas, history } = this;
    const ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width || !height) return;
    const row = Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(height / Math.max(1, history.numLanes))));
    const isSame = width === this.size.width && height === this.size.height && row === this.size.row && ratio === this.size.ratio;
    const context = canvas.getContext("2d");
    if (!isSame) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      this.size = { width, height, row, ratio };
    } else if (this.frozen !== null && numNew !== Infinity) return;
    if (!isSame || numNew === Infinity) this.readColors();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const columns = Math.ceil(width / CELL);
    const last = this.last();
    let first = Math.max(0, last - columns + 1);
    if (isSame && numNew < columns && numNew !== Infinity) {
      if (!numNew) return;
      const shift = numNew * CELL * ratio;
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.globalCompositeOperation = "copy";
      context.drawImage(canvas, -shift, 0);
      context.globalCompositeOperation = "source-over";
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      first = last - numNew + 1;
      context.clearRect(width - numNew * CELL, 0, numNew * CELL, height);
    } else context.clearRect(0, 0, width, height);
    for (let place = Math.max(0, first); place <= last; place++) this.column(context, history.steps[place], width - (last - place + 1) * CELL, row);
  }

  /** Find out what the colors of the style are now: a canvas knows no variables. */
  readColors() {
    const { style } = this.canvas;
    for (const name of ["accent", "soft", "warn", "bad"]) {
      style.color = `var(--${name})`;
      this.colors[name] = getComputedStyle(this.canvas).color;
    }
    style.color = "";
  }

  /** Place of the newest step that is shown. */
  last() {
    const { steps } = this.history;
    let last = steps.length - 1;
    if (this.frozen !== null) while (last > 0 && steps[last].number > this.frozen) last--;
    return Math.max(-1, last - this.back);
  }

  column(context, step, x, row) {
    const { colors, history } = this;
    const gap = row > 5 ? 1 : 0;
    step.lanes.forEach((lane, i) => {
      const isPrompt = step.kinds[i] === 1;
      const isDeferrable = history.known.get(step.requests[i])?.isDeferrable;
      context.fillStyle = isPrompt ? colors.accent : step.counts[i] > 1 ? colors.warn : colors.soft;
      context.globalAlpha = isDeferrable ? 0.4 : isPrompt ? 1 : 0.55;
      const high = isPrompt ? row - gap : Math.max(1, Math.round((row - gap) * 0.4));
      context.fillRect(x, lane * row + (row - gap - high) / 2, CELL - 1, high);
    });
    context.globalAlpha = 1;
    context.fillStyle = colors.bad;
    for (const lane of step.retracted) context.fillRect(x, lane * row, CELL - 1, row - gap);
  }

  find(x, y) {
    const { width, row } = this.size;
    if (!row) return null;
    return this.history.at(this.last() - Math.floor((width - x) / CELL), Math.floor(y / row));
  }
}
