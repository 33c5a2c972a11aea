/* Moving through time on the strip below the pictures: drag the frame, click, or the arrow keys. */

import { clock, dayClock } from '../shell/format.js';
import { byId } from '../shell/element.js';
import { RANGES } from './timeline.js';
/** @import { Hour } from '../charts/hour.js' */
/** @import { End, Timeline } from './timeline.js' */

const DAY_S = 86_400;
/** Minimum time between updates while dragging, ms. */
const FOLLOW_MS = 180;

/**
 * Return the right edge (unix seconds) of a window of `spanS` centred on `at` within the strip; '' if it ends now.
 * @param {number} at
 * @param {number} spanS
 * @param {number} from
 * @param {number} now
 */
export function endAround(at, spanS, from, now) {
  return endAt(at + spanS / 2, spanS, from, now);
}

/**
 * Return the right edge `end`, clamped between the strip's beginning `from` and now; '' if it ends now.
 * @param {number} end
 * @param {number} spanS
 * @param {number} from
 * @param {number} now
 * @returns {End}
 */
export function endAt(end, spanS, from, now) {
  const kept = Math.max(from + spanS, end);
  return kept >= now - spanS * 0.02 ? '' : Math.round(kept);
}

export class Scrubber {
  /**
   * `choose(end)` is called with unix seconds or ''.
   * @param {Timeline} timeline
   * @param {(end: End) => void} choose
   */
  constructor(timeline, choose) {
    this.timeline = timeline;
    this.choose = choose;
    this.strip = /** @type {Hour} */ (byId('hour'));
    /** @type {{ from: number, to: number, spanS: number } | null} The strip drawn. */
    this.shown = null;
    this.strip.addEventListener('pointerdown', (event) => this.#down(event));
    this.strip.addEventListener('keydown', (event) => this.#key(event));
  }

  /** Write the position of the window. */
  update() {
    const { state } = this.timeline;
    if (state.index === null) return;
    this.shown = this.#strip;
    const words = this.#strip.spanS > DAY_S / 2 ? dayClock : clock;
    const { from, to } = this.#strip;
    this.strip.setAttribute('aria-valuemin', String(Math.round(from)));
    this.strip.setAttribute('aria-valuemax', String(Math.round(to)));
    this.strip.setAttribute('aria-valuenow', String(Math.round(Math.min(to, state.timeOf(state.last + 1)))));
    const live = this.timeline.end ? '' : ', until now';
    this.strip.setAttribute(
      'aria-valuetext',
      `${words(state.timeOf(state.first))} to ${words(state.timeOf(state.last + 1))}${live}`,
    );
  }

  get #strip() {
    const { state } = this.timeline;
    const to = (state.hourIndex + 1) * state.hourColumnS;
    const spanS = state.hourColumns * state.hourColumnS;
    return { from: to - spanS, to, spanS };
  }

  /** Seconds of the moved window. */
  get spanS() {
    return RANGES[this.timeline.range].spanS;
  }

  #now() {
    return this.timeline.live.state.at ?? Date.now() / 1000;
  }

  /** @param {PointerEvent} event */
  #down(event) {
    if (event.button !== 0 || !this.shown) return;
    event.preventDefault();
    this.strip.focus();
    this.strip.setPointerCapture(event.pointerId);
    const { from, spanS: stripS } = this.shown;
    const width = this.strip.clientWidth;
    const { spanS } = this;
    let last = 0;
    /** @type {End} */
    let end = '';
    /** @param {PointerEvent} pointer */
    const move = (pointer) => {
      const at = from + (Math.min(width, Math.max(0, pointer.offsetX)) / width) * stripS;
      end = endAround(at, spanS, from, this.#now());
      this.strip.drag(end === '' ? this.#now() : end);
      if (performance.now() - last < FOLLOW_MS) return;
      last = performance.now();
      this.choose(end);
    };
    const up = () => {
      this.strip.removeEventListener('pointermove', move);
      this.strip.drag(null);
      this.choose(end);
    };
    this.strip.addEventListener('pointermove', move);
    this.strip.addEventListener('lostpointercapture', up, { once: true });
    move(event);
  }

  /**
   * Step from the requested end, which may still be loading.
   * @param {KeyboardEvent} event
   */
  #key(event) {
    /** @type {Record<string, number>} */
    const steps = { ArrowLeft: -0.25, ArrowRight: 0.25, PageUp: -1, PageDown: 1 };
    if (!(event.key in steps) && event.key !== 'Home' && event.key !== 'End') return;
    event.preventDefault();
    event.stopPropagation();
    if (event.key === 'End') this.choose('');
    else if (this.shown) {
      const { from } = this.shown;
      const end = event.key === 'Home' ? from : (this.timeline.end || this.#now()) + steps[event.key] * this.spanS;
      this.choose(endAt(end, this.spanS, from, this.#now()));
    }
  }
}
