/* Builds the chart rows of a pool: series over one time axis, with scales, colours and labels. */

import { percentText, ratio, whole, UNKNOWN } from '../shell/format.js';
import { highest, roundTop } from './series.js';
/** @import { Points, Series } from './series.js' */

/** An unchanged plan is stored once a minute; one missing plan is not a gap. */
const PLAN_HOLD_S = 150;
/** A line at the very top would appear cut off. */
const HEAD_ROOM = 1.1;
/** @param {number} value */
const work = (value) => (Number.isFinite(value) ? value.toFixed(1) : UNKNOWN);

/**
 * @param {(number | null)[][]} rows
 * @param {number} index
 * @returns {Points}
 */
const column = (rows, index) => rows.map((row) => [row[0] ?? NaN, row[index]]);

/**
 * The server's answer: series of [unix s, value], those of roles and engines with several values.
 * @typedef {object} ChartData
 * @property {number} from_s
 * @property {number} to_s
 * @property {number} column_s
 * @property {boolean} live
 * @property {number} target
 * @property {[low: number, high: number]} band
 * @property {Points} desired
 * @property {(number | null)[][]} engines
 * @property {Points} quarantined
 * @property {Points} on_time
 * @property {Points} demand
 * @property {Points} forecast
 * @property {Points} capacity
 * @property {(number | null)[][]} roles
 * @property {{ at: number, kind: string, label: string, text: string }[]} marks
 */

/**
 * @typedef {object} SeriesLooks
 * @property {string} key
 * @property {string} name
 * @property {string} colour
 * @property {number} width
 * @property {number[]} dash
 * @property {(value: number) => string} words
 * @property {boolean} [quiet] not drawn where it stays at 0
 * @property {boolean} [below] tinted where below the target
 */

/** @typedef {Series & SeriesLooks} ChartSeries */

/**
 * @typedef {object} RowPlan
 * @property {string} key
 * @property {string} name
 * @property {ChartSeries[]} series
 * @property {number} [least] lowest upper end of the scale
 * @property {number} [top]
 * @property {number} [bottom]
 * @property {string} [range]
 * @property {string} [note]
 * @property {string} [heading]
 * @property {number} [target]
 * @property {number} [middle]
 * @property {[low: number, high: number]} [band]
 */

/** @typedef {RowPlan & { from: number, to: number, top: number, bottom: number, range: string }} ChartRow */

/**
 * @callback Draw
 * @param {string} key
 * @param {string} name
 * @param {Points} points
 * @param {string} colour
 * @param {Partial<ChartSeries>} [more]
 * @returns {ChartSeries}
 */

/**
 * Return the rows of the server's answer; role rows only if the pool has roles.
 * @param {ChartData} data
 */
export function chartRows(data) {
  const hold = data.column_s * 2.5;
  /** @type {Draw} */
  const step = (key, name, points, colour, more = {}) => ({
    key,
    name,
    points,
    colour,
    kind: 'step',
    hold,
    width: 1.5,
    dash: [],
    words: whole,
    ...more,
  });
  /** @type {Draw} */
  const line = (key, name, points, colour, more = {}) => step(key, name, points, colour, { kind: 'line', ...more });
  const planned = { hold: PLAN_HOLD_S };
  const { from_s: from, to_s: to } = data;
  /**
   * @param {RowPlan} row
   * @returns {ChartRow}
   */
  const scaled = (row) => {
    const top = row.top ?? roundTop(highest(row.series, from, to, row.least ?? 0) * HEAD_ROOM);
    return { ...row, from, to, top, bottom: row.bottom ?? 0, range: row.range ?? `0 to ${whole(top)}` };
  };
  /** @type {RowPlan[]} */
  const rows = [
    {
      key: 'engines',
      name: 'Engines',
      least: 1,
      series: [
        step('desired', 'desired', data.desired, '--ink-2', { ...planned, dash: [4, 3], width: 1 }),
        step('running', 'running', column(data.engines, 1), '--series-live', { width: 2 }),
        step('draining', 'draining', column(data.engines, 2), '--info', { width: 1, quiet: true }),
        step('failed', 'failed', column(data.engines, 3), '--bad', { width: 1.5, quiet: true }),
        step('quarantined', 'quarantined', data.quarantined, '--warn', { ...planned, width: 1.5, quiet: true }),
      ],
    },
    {
      key: 'on-time',
      name: 'On time',
      top: 1,
      bottom: lowest(data.on_time),
      target: data.target,
      range: `${Math.round(lowest(data.on_time) * 100)} to 100\u202f%`,
      note: `target ${percentText(data.target)}`,
      series: [line('on_time', 'on time', data.on_time, '--series-live', { words: percentText, below: true })],
    },
    {
      key: 'work',
      name: 'Demand',
      least: 1,
      note: 'engines',
      series: [
        line('demand', 'observed', data.demand, '--series-actual', { ...planned, dash: [4, 3], words: work }),
        line('forecast', 'forecast', data.forecast, '--series-draft', { ...planned, words: work }),
        step('capacity', 'comfortable', data.capacity, '--series-s4', {
          ...planned,
          width: 1,
          dash: [6, 2],
          words: work,
        }),
      ],
    },
  ];
  if (data.roles.length) rows.push(...roleRows(data, step, line, planned));
  return rows.map(scaled);
}

/**
 * Mooncake Fig. 8: engines of each role, the loads of both stages, and the factor with its target band.
 * @param {ChartData} data
 * @param {Draw} step
 * @param {Draw} line
 * @param {Partial<ChartSeries>} planned
 * @returns {RowPlan[]}
 */
function roleRows({ roles, band, from_s: from, to_s: to }, step, line, planned) {
  const factor = line('imbalance', 'f_im', column(roles, 5), '--series-live', { ...planned, words: ratio });
  return [
    {
      key: 'roles',
      name: 'Roles',
      least: 1,
      note: 'engines',
      heading: 'Prefill and decode',
      series: [
        step('prefill', 'prefill', column(roles, 1), '--term-prefill', { ...planned, width: 2 }),
        step('decode', 'decode', column(roles, 2), '--series-s5', { ...planned, width: 2 }),
      ],
    },
    {
      key: 'loads',
      name: 'Loads',
      least: 1,
      note: '1: fully loaded',
      series: [
        line('prefill_load', 'prefill', column(roles, 3), '--term-prefill', { ...planned, words: ratio }),
        line('decode_load', 'decode', column(roles, 4), '--series-s5', { ...planned, words: ratio }),
      ],
    },
    {
      key: 'imbalance',
      name: 'Imbalance f_im',
      band,
      middle: 1,
      top: Math.max(2, Math.ceil(highest([factor], from, to, 1))),
      note: `above 1: decode is busier; no action from ${ratio(band[0])} to ${ratio(band[1])}`,
      series: [factor],
    },
  ];
}

/**
 * Return the lower end of the on-time scale: the highest that includes all values.
 * @param {Points} points
 */
export function lowest(points) {
  const least = points.reduce((low, [, value]) => (value !== null && value < low ? value : low), 1);
  return [0.8, 0.5].find((bottom) => least >= bottom) ?? 0;
}

/**
 * Return one sentence with the newest values of a row, for screen readers.
 * @param {ChartRow} row
 * @param {(series: ChartSeries) => number} worth
 */
export function summary(row, worth) {
  return `${row.name}: ${row.series.map((series) => `${series.name} ${series.words(worth(series))}`).join(', ')}`;
}
