/* Load CV and on-time share, under the heat on the same time axis; and the axis itself. */

import { clock, count, minuteClock, percent, percentText, ratio, NARROW } from '../shell/format.js';
import { byId, make, setText } from '../shell/element.js';
import { timeTicks } from '../charts/time_axis.js';
/** @import { Lines } from '../charts/lines.js' */
/** @import { FleetState } from '../live/fleet_state.js' */
/** @import { View } from './view.js' */

/** Maximum pools in a chart's accessible name. */
const NAMED_POOLS = 4;
const CV_TOPS = [1, 2, 3, 5, 8, 16];
const ON_TIME_BOTTOMS = [0.8, 0.5, 0];
/**
 * Return the smallest range from 0 that includes the CV values.
 * @param {number[]} values
 */
export function cvTop(values) {
  const highest = values.reduce((most, value) => (value > most ? value : most), 0);
  return CV_TOPS.find((top) => highest <= top) ?? Math.ceil(highest);
}

/**
 * Return the range of the on-time share: from 100 % down to include the lowest value.
 * @param {number[]} values
 */
export function onTimeBottom(values) {
  const lowest = values.reduce((least, value) => (value < least ? value : least), 1);
  return ON_TIME_BOTTOMS.find((bottom) => lowest >= bottom) ?? 0;
}

/**
 * Return a chart's accessible name with its current values.
 * @param {string} title
 * @param {string[]} values One "pool value" text per pool.
 * @param {string} line The meaning of the horizontal line; '' for none.
 */
export function chartName(title, values, line) {
  const left = values.length - NAMED_POOLS;
  const more = left > 0 ? `, ${count(left, 'more pool')}` : '';
  return `${title}: ${values.slice(0, NAMED_POOLS).join(', ')}${more}${line ? `; ${line}` : ''}`;
}

export class LineCharts {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.charts = {
      cv: /** @type {Lines} */ (byId('cv-lines')),
      on_time: /** @type {Lines} */ (byId('on-time-lines')),
    };
    /** @type {Record<string, number>} Pool id → CV threshold of uneven load in its policy. */
    this.limits = JSON.parse(byId('cv-lines').dataset.limits || '{}');
  }

  update() {
    const { view } = this;
    const { state, pools } = view;
    if (state.index === null || !pools.length) return;
    /**
     * @param {'cv' | 'on_time'} name
     */
    const read = (name) => pools.map((pool) => state.series((index) => state.poolAt(name, pool, index)));
    const [cv, onTime] = [read('cv'), read('on_time')];
    const limit = this.#cvLimit();
    const top = cvTop([...cv.flat(), limit ?? 0]);
    const bottom = onTimeBottom(onTime.flat());
    this.#chart('cv', cv, [0, top], [0, top / 2, top], limit, true);
    this.#chart('on_time', onTime, [bottom, 1], [bottom, (1 + bottom) / 2, 1], view.target);
    const target = `target ${+(100 * view.target).toFixed(2)}${NARROW}%`;
    setText(byId('cv-range'), `0 to ${top}`);
    setText(byId('cv-limit'), limit === null ? '' : `limit ${ratio(limit)}`);
    setText(byId('on-time-range'), `${bottom * 100} to 100${NARROW}%`);
    setText(byId('on-time-target'), target);
    this.#name(
      'cv',
      'Load CV',
      (pool) => ratio(state.poolNow('cv', pool)),
      limit === null ? '' : `uneven from ${ratio(limit)}`,
    );
    this.#name('on_time', 'Requests on time', (pool) => percentText(state.poolNow('on_time', pool)), target);
    this.#values('cv-values', (pool) => ratio(state.poolNow('cv', pool)));
    this.#values('on-time-values', (pool) => percent(state.poolNow('on_time', pool)) + NARROW + '%');
    this.#axis();
  }

  /** CV threshold of uneven load in the focused pool's policy; null if unknown. */
  #cvLimit() {
    return this.limits[this.view.state.pools[this.view.focus]?.id] ?? null;
  }

  /**
   * @param {'cv' | 'on_time'} name
   * @param {number[][]} series
   * @param {[low: number, high: number]} range
   * @param {number[]} grid
   * @param {number | null} target
   */
  #chart(name, series, range, grid, target, above = false) {
    const { state, pools, focus } = this.view;
    const x = state.series((index) => state.timeOf(index) + state.columnS / 2);
    /** @type {[from: number, to: number]} */
    const span = [state.timeOf(state.first), state.timeOf(state.last + 1)];
    this.charts[name].show({ x, series, focus: pools.indexOf(focus), range, grid, target, above, span });
  }

  /**
   * Put the current values into the chart's accessible name.
   * @param {'cv' | 'on_time'} chart
   * @param {string} title
   * @param {(pool: number) => string} format
   * @param {string} line
   */
  #name(chart, title, format, line) {
    const { state, pools } = this.view;
    const values = pools.map((pool) => `${state.pools[pool].name} ${format(pool)}`);
    const text = chartName(title, values, line);
    if (this.charts[chart].getAttribute('aria-label') !== text) this.charts[chart].setAttribute('aria-label', text);
  }

  /**
   * Write the newest values at the right, the focused pool first, with the names of several pools.
   * @param {string} id
   * @param {(pool: number) => string} format
   */
  #values(id, format) {
    const { state, pools, focus } = this.view;
    const order = [focus, ...pools.filter((pool) => pool !== focus)].slice(0, 3);
    const key = JSON.stringify(order.map((pool) => [pool, format(pool)]));
    const root = byId(id);
    if (root.dataset.key === key) return;
    root.dataset.key = key;
    root.replaceChildren(
      ...order.map((pool) => {
        const figure = make(pool === focus ? 'b' : 'span', '', format(pool).replace('—' + NARROW + '%', '—'));
        const name = make('span', 'line-pool', pools.length > 1 ? state.pools[pool].name : '');
        const dash = make('i', pool === focus ? 'line-key focused' : 'line-key');
        const line = make('span', 'line-value', name, dash, figure);
        line.title = state.pools[pool].name;
        return line;
      }),
    );
  }

  #axis() {
    const { state } = this.view;
    const axis = byId('axis');
    const end = this.view.fixed ? (state.spanS > 600 ? minuteClock : clock)(state.timeOf(state.last + 1)) : 'now';
    const ticks = timeTicks(state.timeOf(state.first), state.columns * state.columnS, end === 'now' ? 92 : 84);
    const key = `${state.first} ${ticks.length} ${end}`;
    if (axis.dataset.key === key) return;
    axis.dataset.key = key;
    axis.replaceChildren(
      ...ticks.map(([label, left]) => {
        const tick = make('span', '', label);
        tick.style.left = `${left.toFixed(3)}%`;
        return tick;
      }),
      make('span', 'axis-now', end),
    );
  }
}
