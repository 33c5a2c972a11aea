/* Queue figures summed over pools: queued requests, dispatches, migrations, rejections; and their labels. */

import { NARROW, duration, rate, whole } from '../../shell/format.js';
/** @import { FleetState } from '../../live/fleet_state.js' */

/** Rejection reasons by code; an unknown code is shown as it is. */
export const REJECTIONS = {
  no_engine: 'no engine available',
  queue_full: 'queue full',
  gateway_late: 'gateway late',
  wait_expired: 'max wait reached',
  deadline_passed: 'deadline passed',
  infeasible: 'SLO-infeasible',
  prefill_overload: 'prefill overloaded',
  decode_overload: 'decode overloaded',
};

/**
 * Return the label of a code.
 * @param {string} code
 */
export const rejectionWord = (code) =>
  (Object.hasOwn(REJECTIONS, code) && REJECTIONS[/** @type {keyof typeof REJECTIONS} */ (code)]) ||
  code.replaceAll('_', ' ');

/** Series that are summed over pools, by their names here. */
const SUMS = {
  bound: 'bound',
  unbound: 'unbound',
  atOnce: 'dispatched_at_once_per_s',
  waited: 'dispatched_waited_per_s',
  migrated: 'migrations_per_s',
  rejected: 'rejections_per_s',
  overtaken: 'overtaken_per_s',
  failed: 'failed',
};

/** @typedef {keyof typeof SUMS} QueueSeries */

export const QUEUE_SERIES = /** @type {QueueSeries[]} */ (Object.keys(SUMS));

/**
 * Return the sum of the known values, NaN without any.
 * @param {number[]} pools
 * @param {(pool: number) => number} read
 */
function sum(pools, read) {
  let total = NaN;
  for (const pool of pools) {
    const value = read(pool);
    if (!Number.isNaN(value)) total = (total || 0) + value;
  }
  return total;
}

/**
 * @template T
 * @param {(name: QueueSeries) => T} read
 * @returns {Record<QueueSeries, T>}
 */
function byName(read) {
  const entries = QUEUE_SERIES.map((name) => [name, read(name)]);
  return /** @type {Record<QueueSeries, T>} */ (Object.fromEntries(entries));
}

/** @typedef {Record<QueueSeries, number> & { codes: [code: string, perS: number][] }} QueueFigures */

/**
 * Return the series of QUEUE_SERIES over the pools, oldest first, as typed arrays.
 * @param {FleetState} state
 * @param {number[]} pools
 * @returns {Record<QueueSeries, Float32Array>}
 */
export function queueSeries(state, pools) {
  return byName((name) => {
    const series = new Float32Array(state.columns);
    for (let column = 0; column < state.columns; column += 1) {
      series[column] = sum(pools, (pool) => state.poolAt(SUMS[name], pool, state.first + column));
    }
    return series;
  });
}

/**
 * Return the same figures at one moment: `index` of a column, null for now; `codes` are [code, per second], most first.
 * @param {FleetState} state
 * @param {number[]} pools
 * @param {number | null} index
 * @returns {QueueFigures}
 */
export function queueFigures(state, pools, index = null) {
  /**
   * @param {string} name
   * @param {number} pool
   */
  const value = (name, pool) => (index === null ? state.poolNow(name, pool) : state.poolAt(name, pool, index));
  const figures = byName((name) => sum(pools, (pool) => value(SUMS[name], pool)));
  /** @type {Map<string, number>} */
  const codes = new Map();
  for (const pool of pools) {
    const rejections = index === null ? state.rejectionsNow(pool) : state.rejectionsAt(pool, index);
    for (const [code, perS] of Object.entries(rejections)) codes.set(code, (codes.get(code) ?? 0) + perS);
  }
  const sorted = [...codes].sort(([one, often], [other, rare]) => rare - often || one.localeCompare(other));
  return { ...figures, codes: sorted };
}

/**
 * Format requests per second: none is 0, not 0.0.
 * @param {number} value
 */
export const perSecond = (value) => (value === 0 ? '0' : rate(value));

/**
 * Return rejection reasons, the most frequent first: "queue full 0.3 /s, waited too long 0.1 /s"; '' for none.
 * @param {[code: string, perS: number][]} codes
 */
export function rejectionText(codes, most = 3) {
  const shown = codes.slice(0, most).map(([code, perS]) => `${rejectionWord(code)} ${rate(perS)}${NARROW}/s`);
  return shown.join(', ') + (codes.length > most ? ` and ${codes.length - most} more` : '');
}

/**
 * Return the readout of the queue at a moment: [label, value] pairs after the first.
 * @param {FleetState} state
 * @param {number[]} pools
 * @param {number} focus
 * @param {number} index
 */
export function queueParts(state, pools, focus, index) {
  const figures = queueFigures(state, pools, index);
  /** @param {number} value */
  const per = (value) => `${perSecond(value)}${NARROW}/s`;
  return [
    ['Bound', whole(figures.bound)],
    ['Unbound', whole(figures.unbound)],
    ['Dispatched at once', per(figures.atOnce)],
    ['after waiting', per(figures.waited)],
    [
      pools.length > 1 ? `Wait p90, ${state.pools[focus].name}` : 'Wait p90',
      duration(state.poolAt('queue_wait_p90_s', focus, index)),
    ],
    ['Migrated', per(figures.migrated)],
    ['Failed', whole(figures.failed)],
    [
      'Rejected',
      figures.codes.length ? `${per(figures.rejected)}: ${rejectionText(figures.codes)}` : per(figures.rejected),
    ],
  ];
}

/**
 * Return the smallest of 1, 2, 5 × 10ⁿ that is at least every value and `least`.
 * @param {number} least
 * @param {Float32Array[]} series
 */
export function scaleTop(least, ...series) {
  let highest = least;
  for (const values of series) for (const value of values) if (value > highest) highest = value;
  const power = 10 ** Math.floor(Math.log10(highest));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= highest * (1 - 1e-6)) ?? highest;
}

/**
 * Stack two series; unknown only where both are.
 * @param {Float32Array} lower
 * @param {Float32Array} upper
 */
export function stacked(lower, upper) {
  return lower.map((value, column) => (Number.isNaN(value) ? upper[column] : value + (upper[column] || 0)));
}
