// The steps of the last minute, the requests in them, and the lane of each request.

const KEPT = 2400; // steps, about a minute of a busy server
const FREE_AFTER = 30; // steps for which the lane of an ended request stays empty

/** Keeps the steps that frames bring. */
export class History {
  constructor() {
    this.clear();
  }

  /** Forget everything. */
  clear() {
    this.steps = []; // { number, at, requests, counts, kinds, lanes, retracted }
    this.known = new Map(); // number of a request -> its last view
    this.lanes = new Map(); // number of a request -> lane
    this.owners = []; // lane -> { number, until: step after which the lane is free, or Infinity }
    this.running = [];
    this.waiting = [];
    this.numWaiting = 0;
  }

  /** Return the number of lanes that are or were in use in the kept steps. */
  get numLanes() {
    return this.owners.length;
  }

  /** Take the steps of a frame; return how many are new. */
  take(view) {
    if (!view) return 0;
    const last = this.steps.at(-1)?.number ?? 0;
    if (view.steps.length && view.steps[0][0] <= last && view.steps.at(-1)[0] < last) this.clear(); // another engine
    this.running = view.running.map(requestOf);
    this.waiting = view.waiting.map(requestOf);
    this.numWaiting = view.num_waiting;
    for (const each of [...view.ended.map(requestOf), ...this.running, ...this.waiting]) this.known.set(each.number, each);
    const fresh = view.steps.filter(([number]) => number > (this.steps.at(-1)?.number ?? 0));
    for (const step of fresh) this.steps.push(this.placed(step));
    const gone = new Set(this.running.map((each) => each.number));
    for (const owner of this.owners) {
      if (owner.until === Infinity && !gone.has(owner.number)) owner.until = (this.steps.at(-1)?.number ?? 0) + FREE_AFTER;
    }
    const retracted = this.waiting.filter((each) => this.lanes.has(each.number)).map((each) => this.lanes.get(each.number));
    if (fresh.length) this.steps.at(-1).retracted = retracted;
    this.trim();
    return fresh.length;
  }

  /** Return the request in a lane at a step; null if there is none. */
  at(place, lane) {
    const step = this.steps[place];
    const i = step ? step.lanes.indexOf(lane) : -1;
    return i < 0 ? null : { ...this.known.get(step.requests[i]), count: step.counts[i], kind: step.kinds[i], step: step.number };
  }

  placed([number, at, requests, counts, kinds]) {
    return { number, at, requests, counts, kinds, retracted: [], lanes: requests.map((request) => this.laneOf(request, number)) };
  }

  laneOf(request, step) {
    let lane = this.lanes.get(request);
    if (lane === undefined || this.owners[lane]?.number !== request) {
      lane = this.owners.findIndex((owner) => owner.until < step);
      if (lane < 0) lane = this.owners.length;
      this.lanes.set(request, lane);
    }
    this.owners[lane] = { number: request, until: Infinity };
    return lane;
  }

  trim() {
    if (this.steps.length <= KEPT) return;
    this.steps.splice(0, this.steps.length - KEPT);
    const shown = new Set(this.steps.flatMap((step) => step.requests));
    for (const each of [...this.running, ...this.waiting]) shown.add(each.number);
    for (const number of [...this.known.keys()]) if (!shown.has(number)) this.known.delete(number);
    for (const number of [...this.lanes.keys()]) if (!shown.has(number)) this.lanes.delete(number);
    const used = Math.max(-1, ...this.lanes.values());
    while (this.owners.length > used + 1 && this.owners.at(-1).until < this.steps[0].number) this.owners.pop();
  }
}

function requestOf([number, id, tenant, isDeferrable, promptTokens, numTokens, numComputed, reason = ""]) {
  return { number, id, tenant, isDeferrable, promptTokens, numTokens, numComputed, reason };
}
