/* The stored past: fetches a range, and the columns that follow if it ends now. */

import { FleetState } from './fleet_state.js';
import { isKeyframe, isMore, readFrame } from './frame_reader.js';
/** @import { End, Range } from './timeline.js' */

const FOLLOW_MS = 10_000;
/** The newest columns may still change when stored, so they are fetched again. */
const OVERLAP = 3;

/** Calls onFrame(isKeyframe) after the state changed, onFailure(words) if a range is unavailable. */
export class PastFeed {
  /** @param {{ onFrame: (keyframe: boolean) => void, onFailure: (words: string) => void }} listener */
  constructor({ onFrame, onFailure }) {
    this.onFrame = onFrame;
    this.onFailure = onFailure;
    this.state = new FleetState();
    /** @type {{ range: Range, end: End } | null} */
    this.asked = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** @type {AbortController | null} */
    this.request = null;
    document.addEventListener('visibilitychange', () => !document.hidden && this.#follow());
  }

  /**
   * Show range `range` up to unix seconds `end` ('' follows the present).
   * @param {Range} range
   * @param {End} end
   */
  show(range, end) {
    this.asked = { range, end };
    this.#fetch(false, true);
  }

  /** Stop following; keep the last range. */
  stop() {
    this.asked = null;
    clearTimeout(this.timer);
    this.request?.abort();
  }

  #follow() {
    if (this.asked && !this.asked.end && !document.hidden) this.#fetch(true);
  }

  /**
   * `fresh`: a new range that replaces the one held.
   * @param {boolean} more
   */
  async #fetch(more, fresh = false) {
    const { asked, state } = this;
    if (!asked) return;
    clearTimeout(this.timer);
    this.request?.abort();
    const request = (this.request = new AbortController());
    const query = new URLSearchParams([['range', asked.range]]);
    if (asked.end) query.set('end', String(asked.end));
    if (more && state.index !== null && state.roster) {
      query.set('after', String(state.index - OVERLAP));
      query.set('roster', state.roster);
    }
    try {
      const answer = await fetch(`/fleet/history?${query}`, {
        signal: request.signal,
        headers: { Accept: 'application/octet-stream' },
      });
      if (!answer.ok) throw new Error(await rejection(answer));
      const buffer = await answer.arrayBuffer();
      if (asked === this.asked) this.#take(buffer);
    } catch (error) {
      if (request.signal.aborted) return;
      if (fresh) this.state = new FleetState();
      this.onFailure(
        error instanceof Error && !(error instanceof TypeError) ? error.message : 'the server does not answer',
      );
    }
    if (asked === this.asked && !asked.end) this.timer = setTimeout(() => this.#follow(), FOLLOW_MS);
  }

  /** @param {ArrayBuffer} buffer */
  #take(buffer) {
    const frame = readFrame(buffer, this.state.shape);
    if (isKeyframe(frame)) this.state.applyKeyframe(frame);
    else if (!isMore(frame) || !this.state.applyMore(frame)) {
      this.#fetch(false);
      return;
    }
    this.onFrame(isKeyframe(frame));
  }
}

/** @param {Response} answer */
async function rejection(answer) {
  if (answer.redirected || answer.status === 401 || answer.status === 403) return 'you are signed out; reload the page';
  const words = await answer.json().catch(() => ({}));
  return words.error ?? `the server answered ${answer.status}`;
}
