/* Rows and their order: engines, or bands of a pool in a large fleet. */

import { BANDS } from '../../live/band_series.js';
/** @import { FleetState } from '../../live/fleet_state.js' */

export const SORTS = ['name', 'load'];
/** Above this number of engines, pools can be folded into bands. */
export const FOLD_ABOVE = 64;
/** Above this number of engines, pools are folded until opened. */
export const BANDS_ABOVE = 256;
/** Engines shown for an open band: the nearest ones. */
export const BAND_ENGINES = 24;
/** Maximum engines shown for a whole pool; search lists the others. */
export const POOL_ENGINES = 512;
/** Maximum engines not serving that are listed above the bands. */
const ODD_ENGINES = 12;

/**
 * Return the peak in-flight seconds of an engine; −1 if unknown.
 * @param {FleetState} state
 * @param {number} row
 */
export function peakSeconds(state, row) {
  let peak = -1;
  for (let index = state.first; index <= state.last; index += 1) {
    const value = state.engineAt('seconds', row, index);
    if (value > peak) peak = value;
  }
  return peak;
}

/**
 * Return whether a pool shows bands; `folds` has the pools (and bands) that a person toggled.
 * @param {string} poolId
 * @param {number} total
 * @param {Set<string>} folds
 */
export function isFolded(poolId, total, folds) {
  return total > FOLD_ABOVE && total > BANDS_ABOVE !== folds.has(poolId);
}

/**
 * The rows of one pool.
 * @typedef {object} RowGroup
 * @property {number} pool row in state.pools
 * @property {number[]} rows rows of the state: engines and bands
 * @property {number} total number of engines
 * @property {boolean} folded
 * @property {boolean} foldable
 */

/**
 * Return groups of rows: [{pool, rows, total, folded, foldable}]; `pool` and `rows` are rows of state.pools and
 * of the state. `poolId` '' shows all pools; `sort` is one of SORTS, load meaning the highest peak first; the engine
 * `engineId` always has a row.
 * @param {FleetState} state
 * @param {{ poolId?: string, sort?: string, folds?: Set<string>, engineId?: string }} choice
 * @returns {RowGroup[]}
 */
export function rowPlan(state, { poolId = '', sort = SORTS[0], folds = new Set(), engineId = '' }) {
  /** @param {{ id: string }} pool */
  const members = (pool) => state.engines.flatMap((engine, row) => (engine.pool === pool.id ? [row] : []));
  const shown = state.pools.map((pool, row) => ({ pool, row })).filter(({ pool }) => !poolId || pool.id === poolId);
  /** @param {number} row */
  const there = (row) => state.engines[row].state !== 'removed';
  const total = shown.reduce((sum, { pool }) => sum + members(pool).filter(there).length, 0);
  return shown.map(({ pool, row }) => {
    const engines = members(pool);
    const folded = isFolded(pool.id, total, folds);
    const rows = folded
      ? foldedRows(state, row, engines, folds, engineId)
      : sorted(state, engines, sort).slice(0, POOL_ENGINES);
    return { pool: row, rows, total: engines.filter(there).length, folded, foldable: total > FOLD_ABOVE };
  });
}

/**
 * @param {FleetState} state
 * @param {number[]} engines
 * @param {string} sort
 */
function sorted(state, engines, sort) {
  if (sort !== 'load') return engines;
  const peaks = new Map(engines.map((row) => [row, peakSeconds(state, row)]));
  return [...engines].sort((one, other) => (peaks.get(other) ?? -1) - (peaks.get(one) ?? -1) || one - other);
}

/**
 * @param {FleetState} state
 * @param {number} pool
 * @param {number[]} engines
 * @param {Set<string>} folds
 * @param {string} engineId
 */
function foldedRows(state, pool, engines, folds, engineId) {
  const { id } = state.pools[pool];
  const odd = engines.filter((row) => !['serving', 'removed'].includes(state.engines[row].state)).slice(0, ODD_ENGINES);
  const named = engines.filter((row) => state.engines[row].id === engineId && !odd.includes(row));
  const open = BANDS.some((_, band) => folds.has(`${id}.${band}`));
  const ranked = open ? sorted(state, engines, 'load') : [];
  const bands = BANDS.flatMap(([share], band) => {
    const row = state.bands.rowOf(pool, band);
    return folds.has(`${id}.${band}`) ? [row, ...nearest(ranked, share)] : [row];
  });
  return [...new Set([...odd, ...named, ...bands])];
}

/**
 * Return the engines around share `share` of `ranked`, sorted from the highest peak to the lowest.
 * @param {number[]} ranked
 * @param {number} share
 */
export function nearest(ranked, share, most = BAND_ENGINES) {
  const middle = Math.round((1 - share) * (ranked.length - 1));
  const from = Math.max(0, Math.min(ranked.length - most, middle - (most >> 1)));
  return ranked.slice(from, from + most);
}
