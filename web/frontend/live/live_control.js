/* Live, paused, past, reconnecting: the time control in the top bar and the text in the bottom line. */

import { NARROW, ago, clock, dayClock, longAgo, zoneName } from '../shell/format.js';
import { RANGES, isRange } from './timeline.js';
import { byId, closest, findAll, required, setText } from '../shell/element.js';
/** @import { FleetState } from './fleet_state.js' */
/** @import { End, Range, Timeline } from './timeline.js' */

/** @param {number} value */
const whole = (value) => `${Math.floor(value)}${NARROW}s`;
const DAY_S = 86_400;

/**
 * Return the label of a status.
 * @param {string} status
 * @param {{ at: number | null, silenceS: number, behindS: number }} facts
 */
export function liveWords(status, { at, silenceS, behindS }) {
  switch (status) {
    case 'live':
      return 'Live';
    case 'paused':
      return `Paused ${clock(at)}, ${whole(behindS)} behind`;
    case 'past':
      return `Past, ${longAgo(behindS)}`;
    case 'failed':
      return 'No history';
    case 'silent':
      return `No sample for ${whole(silenceS)}`;
    case 'reconnecting':
      return `Reconnecting, ${whole(silenceS)}`;
    case 'signed-out':
      return 'Signed out, sign in again';
    case 'waiting':
      return 'Waiting for data';
    default:
      return 'Connecting';
  }
}

/**
 * Return the range shown, as "03:10:30 – 03:15:30 UTC", with days where it is longer than a few hours or not of today.
 * @param {number} from
 * @param {number} to
 * @param {number} now
 */
export function rangeWords(from, to, now) {
  const days = to - from >= DAY_S / 2 || now - from >= DAY_S;
  const words = days ? dayClock : clock;
  return `${words(from)} – ${words(to)} ${zoneName()}`;
}

/**
 * Unix seconds as the value of a datetime-local field in UTC, and back (NaN for none).
 * @param {number} at
 */
export const fieldValue = (at) => new Date(at * 1000).toISOString().slice(0, 19);
/** @param {string} value */
export const fieldMoment = (value) => Date.parse(`${value}Z`) / 1000;

export class LiveControl {
  /**
   * @param {Timeline} timeline
   * @param {(range: Range, end: End) => void} choose
   */
  constructor(timeline, choose) {
    this.timeline = timeline;
    this.choose = choose;
    byId('live-button').addEventListener('click', () =>
      timeline.status === 'signed-out'
        ? location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`)
        : choose(timeline.range, ''),
    );
    byId('verdict-live').addEventListener('click', () => choose(timeline.range, ''));
    byId('pause-button').addEventListener('click', () => this.toggle());
    byId('range-control').addEventListener('click', (event) => {
      const range = closest(event, 'button')?.dataset.range;
      if (isRange(range)) choose(range, timeline.end);
    });
    this.#end();
  }

  /** Pause, or resume live. */
  toggle() {
    if (this.timeline.fixed) this.choose(this.timeline.range, '');
    else this.timeline.pause();
  }

  update() {
    const { timeline } = this;
    const { status, state } = timeline;
    byId('live-control').dataset.state = status;
    byId('fleet').dataset.state = status;
    byId('range-menu').dataset.state = status;
    const facts = { at: state.at, silenceS: timeline.silenceS, behindS: timeline.behindS };
    setText(byId('live-words'), liveWords(status, facts));
    byId('live-button').setAttribute('aria-pressed', String(status === 'live'));
    byId('live-button').title = status === 'live' ? '' : ['Back to live', timeline.failure].filter(Boolean).join('; ');
    byId('pause-button').setAttribute('aria-pressed', String(timeline.fixed));
    byId('pause-button').setAttribute('aria-label', timeline.fixed ? 'Resume live' : 'Pause the view');
    required(byId('pause-button'), 'use', SVGElement).setAttribute('href', timeline.fixed ? '#i-play' : '#i-pause');
    for (const button of findAll(byId('range-control'), 'button'))
      button.setAttribute('aria-pressed', String(button.dataset.range === timeline.range));
    setText(
      byId('status-live'),
      {
        live: 'Live',
        paused: 'Paused',
        past: 'Past',
        failed: 'No history',
        silent: 'No samples',
        reconnecting: 'Live view lost',
        waiting: 'No samples yet',
        'signed-out': 'Signed out',
      }[status] ?? 'Connecting',
    );
    // The age of the live feed does not apply to a paused view.
    setText(
      byId('status-age'),
      timeline.fixed || timeline.failure || timeline.live.state.at === null
        ? ''
        : ` · last sample ${ago(timeline.silenceS)}`,
    );
    this.#range(state);
  }

  /** @param {FleetState} state */
  #range(state) {
    if (state.index === null) {
      setText(byId('range-clock'), '—');
      return;
    }
    setText(
      byId('range-clock'),
      rangeWords(state.timeOf(state.first), state.timeOf(state.last + 1), Date.now() / 1000),
    );
    setText(byId('tiles-range'), `of ${RANGES[this.timeline.range].words}`);
  }

  /** The end can be set to the second. */
  #end() {
    const menu = byId('range-menu', HTMLDetailsElement);
    const field = byId('range-end', HTMLInputElement);
    required(menu, 'summary').addEventListener('click', () => {
      const { state } = this.timeline;
      if (menu.open || state.index === null) return;
      field.value = fieldValue(Math.floor(Math.min(state.timeOf(state.last + 1), Date.now() / 1000)));
      field.max = fieldValue(Math.floor(Date.now() / 1000));
    });
    menu.addEventListener('toggle', () => menu.open && field.focus());
    byId('range-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const moment = fieldMoment(field.value);
      if (Number.isNaN(moment)) return;
      menu.open = false;
      this.choose(this.timeline.range, moment);
    });
  }
}
