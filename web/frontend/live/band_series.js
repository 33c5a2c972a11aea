/* A large pool in five rows: per column the maximum, the minimum, and three quantiles of its engines. */

/** @import { FleetState } from './fleet_state.js' */

/** Share of the engines at or below a band's value, with its name; from the top row to the bottom one. */
/** @type {[share: number, name: string][]} */
export const BANDS = [
  [1, 'Highest'],
  [0.9, '90 %'],
  [0.5, 'Median'],
  [0.1, '10 %'],
  [0, 'Lowest'],
];
/** @typedef {{ known: Float64Array, values: Float32Array }} Ring column number and value of each slot */

const SERIES = ['tokens', 'seconds', 'running', 'bound', 'mean_s'];

/**
 * Return the value at share `share` of ascending `sorted[0..count-1]`.
 * @param {Float32Array} sorted
 * @param {number} count
 * @param {number} share
 */
export function quantile(sorted, count, share) {
  return count ? sorted[Math.min(count - 1, Math.max(0, Math.ceil(share * count) - 1))] : NaN;
}

/**
 * Quantiles over the engines of each pool, computed per column on demand. Row
 * `engines.length + pool × BANDS.length + band` of the state is band `band` of a pool.
 */
export class BandSeries {
  /** @type {Map<string, Ring>} */
  rings = new Map();
  /** @type {Map<number, number[]>} */
  members = new Map();
  scratch = new Float32Array(0);

  /** @param {FleetState} state */
  constructor(state) {
    this.state = state;
    this.reset();
  }

  /** Clear everything, for a new topology. */
  reset() {
    this.rings = new Map();
    this.members = new Map();
    this.scratch = new Float32Array(this.state.engines?.length ?? 0);
  }

  /**
   * Return the row of a pool's band.
   * @param {number} pool
   * @param {number} band
   */
  rowOf(pool, band) {
    return this.state.engines.length + pool * BANDS.length + band;
  }

  /**
   * Return {pool, band, name, share} of a band's row.
   * @param {number} row
   */
  factsOf(row) {
    const offset = row - this.state.engines.length;
    const band = offset % BANDS.length;
    return { pool: Math.floor(offset / BANDS.length), band, share: BANDS[band][0], name: BANDS[band][1] };
  }

  /**
   * Return the engine rows of a pool.
   * @param {number} pool
   */
  engineRows(pool) {
    const known = this.members.get(pool);
    if (known) return known;
    const { id } = this.state.pools[pool];
    const rows = this.state.engines.flatMap((engine, row) => (engine.pool === id ? [row] : []));
    this.members.set(pool, rows);
    return rows;
  }

  /**
   * Invalidate a column.
   * @param {number} index
   */
  changed(index) {
    const slot = index % this.state.columns;
    for (const ring of this.rings.values()) ring.known[slot] = -1;
  }

  /**
   * Return one value of a band in a column, NaN for unknown.
   * @param {string} name
   * @param {number} row
   * @param {number} index
   */
  at(name, row, index) {
    if (!SERIES.includes(name)) return NaN;
    const { pool, band } = this.factsOf(row);
    const key = `${name} ${pool}`;
    const ring = this.rings.get(key) ?? this.#ring();
    this.rings.set(key, ring);
    const slot = index % this.state.columns;
    if (ring.known[slot] !== index) this.#fill(ring, name, pool, index, slot);
    return ring.values[slot * BANDS.length + band];
  }

  #ring() {
    const { columns } = this.state;
    return { known: new Float64Array(columns).fill(-1), values: new Float32Array(columns * BANDS.length) };
  }

  /**
   * @param {Ring} ring
   * @param {string} name
   * @param {number} pool
   * @param {number} index
   * @param {number} slot
   */
  #fill(ring, name, pool, index, slot) {
    const { state, scratch } = this;
    let count = 0;
    for (const row of this.engineRows(pool)) {
      const value = state.engineRing[name][row * state.columns + slot];
      if (Number.isNaN(value)) continue;
      scratch[count] = value;
      count += 1;
    }
    const sorted = scratch.subarray(0, count).sort();
    BANDS.forEach(([share], band) => {
      ring.values[slot * BANDS.length + band] = quantile(sorted, count, share);
    });
    ring.known[slot] = index;
  }
}
