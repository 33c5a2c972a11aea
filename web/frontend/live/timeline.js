/* The range shown: five minutes live, or a stored range that follows the present or is fixed. */

import { PastFeed } from './past_feed.js';
import { LiveFeed } from './live_feed.js';

/** @typedef {'5m' | '1h' | '24h'} Range */
/** @typedef {number | ''} End unix seconds, '' for now */

/**
 * Ranges of the time control: name in the address → words and seconds.
 * @type {Record<Range, { words: string, spanS: number }>}
 */
export const RANGES = {
  '5m': { words: '5 min', spanS: 300 },
  '1h': { words: '1 h', spanS: 3600 },
  '24h': { words: '24 h', spanS: 86_400 },
};

/**
 * Return whether a word names a range.
 * @param {string | null | undefined} word
 * @returns {word is Range}
 */
export const isRange = (word) => Object.hasOwn(RANGES, word ?? '');

/**
 * Calls onFrame(isKeyframe) after the shown state changed and onStatus() when its status may have changed.
 * `end` '' follows the present, else unix seconds.
 */
export class Timeline {
  /** @param {{ range: Range, end: End, onFrame: (keyframe: boolean) => void, onStatus: () => void }} options */
  constructor({ range, end, onFrame, onStatus }) {
    this.onFrame = onFrame;
    this.onStatus = onStatus;
    this.failure = '';
    this.ready = false;
    this.live = new LiveFeed({ onFrame: (keyframe) => this.#liveFrame(keyframe), onStatus });
    this.past = new PastFeed({
      onFrame: (keyframe) => this.#pastFrame(keyframe),
      onFailure: (words) => this.#failed(words),
    });
    this.range = range;
    /** @type {End} */
    this.end = end;
    this.held = false;
    if (!this.fromLive) this.past.show(range, end);
  }

  /** Whether the view is the live one, from the socket's frames. */
  get fromLive() {
    return this.range === '5m' && !this.end;
  }

  /** The state that the page shows. */
  get state() {
    return this.fromLive ? this.live.state : this.past.state;
  }

  /** live, paused, past, connecting, waiting, silent, reconnecting, signed-out or failed. */
  get status() {
    if (this.live.status === 'signed-out') return 'signed-out';
    if (this.fromLive) return this.live.status;
    if (this.failure) return 'failed';
    if (this.end) return 'past';
    return this.held ? 'paused' : this.live.status;
  }

  /** Whether the view is fixed while time advances. */
  get fixed() {
    return Boolean(this.end) || this.held || this.live.paused;
  }

  get silenceS() {
    return this.live.silenceS;
  }

  /** Seconds between the right edge of the view and the newest sample. */
  get behindS() {
    const now = (this.live.paused ? this.live.newestAt : this.live.state.at) ?? Date.now() / 1000;
    if (this.end) return Math.max(0, now - this.end);
    if (this.held) return Math.max(0, now - (this.state.at ?? now)) + this.silenceS;
    return this.live.behindS;
  }

  /**
   * Show another range; the view changes after it has loaded.
   * @param {Range} range
   * @param {End} end
   */
  show(range, end) {
    const wasLive = this.fromLive;
    Object.assign(this, { range, end, held: false, failure: '' });
    if (this.live.paused) this.live.resume();
    if (this.fromLive) {
      this.past.stop();
      if (!wasLive && this.state.index !== null) this.onFrame(true);
    } else {
      this.past.show(range, end);
    }
    this.onStatus();
  }

  /** Pause the view. */
  pause() {
    if (this.fixed || this.state.index === null) return;
    if (this.fromLive) this.live.pause();
    else {
      this.held = true;
      this.past.stop();
    }
    this.onStatus();
  }

  /** Resume live in the same range. */
  resume() {
    this.show(this.range, '');
  }

  /** @param {boolean} keyframe */
  #liveFrame(keyframe) {
    if (this.fromLive) this.onFrame(keyframe);
    else if (!this.fixed && this.past.state.index !== null) {
      this.past.state.takeNow(this.live.state);
      this.onFrame(false);
    }
  }

  /** @param {boolean} keyframe */
  #pastFrame(keyframe) {
    this.failure = '';
    if (this.fromLive || this.held) return;
    if (!this.end && this.live.state.index !== null) this.past.state.takeNow(this.live.state);
    this.onFrame(keyframe);
    this.onStatus();
  }

  /** @param {string} words */
  #failed(words) {
    this.failure = words;
    if (this.state.index === null && !this.fromLive) this.onFrame(true);
    this.onStatus();
  }
}
