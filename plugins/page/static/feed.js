// The server's frames, as they come, and again after the connection was lost.

import { events } from "./server.js";

const AGAIN_MS = 2000;

/** Reads frames until it is closed. */
export class Feed {
  /**
   * @param {function} onframe called with each frame.
   * @param {function} onstate called with "live", or with why there are no frames.
   */
  constructor(onframe, onstate) {
    this.onframe = onframe;
    this.onstate = onstate;
    this.reading = null;
  }

  /** Start to read; without effect if it reads already. */
  open() {
    if (!this.reading) this.read((this.reading = new AbortController()));
  }

  /** Stop reading. */
  close() {
    this.reading?.abort();
    this.reading = null;
  }

  async read(reading) {
    while (!reading.signal.aborted) {
      try {
        for await (const frame of events("admin/page/frames", { signal: reading.signal })) {
          if (frame.comment !== undefined) continue;
          this.onstate(frame.problem || "live");
          this.onframe(frame);
        }
        if (!reading.signal.aborted) this.onstate("The server has ended the stream");
      } catch (error) {
        if (reading.signal.aborted) return;
        this.onstate(error.message);
        if (error.status === 401 || error.status === 403) return;
      }
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
  }
}
