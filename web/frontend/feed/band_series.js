/* A large pool in five rows: at each moment the highest of its engines, the lowest, and three in between. */

/** Share of the engines at or below a band's value, with its name; from the top row to the bottom one. */
export const BANDS = [[1, 'Highest'], [0.9, '90 %'], [0.5, 'Median'], [0.1, '10 %'], [0, 'Lowest']];
const SERIES = ['tokens', 'seconds', 'running', 'bound', 'mean_s'];

/** Value at share `share` of ascending `sorted[0..count-1]`: the smallest that this share does not exceed. */
export function quantile(sorted, count, share) {
  return count ? sorted[Math.min(count - 1, Math.max(0, Math.ceil(share * count) - 1))] : NaN;
}

/**
 * Quantiles over the engines of each pool, column by column, worked out when they are asked for. Row
 * `engines.length + pool × BANDS.length + band` of the state is band `band` of a pool.
 */
export class BandSeries {
  constructor(state) {
    this.state = state;
    this.reset();
  }

  /** Forget everything; the topology may be another one. */
  reset() {
    this.rings = new Map();
    this.members = new Map();
    this.scratch = new Float32Array(this.state.engines?.length ?? 0);
  }

  /** The row that stands for a pool's band. */
  rowOf(pool, band) {
    return this.state.engines.length + pool * BANDS.length + band;
  }

  /** {pool, band, name, share} of a band's row. */
  factsOf(row) {
    const place = row - this.state.engines.length;
    const band = place % BANDS.length;
    return { pool: Math.floor(place / BANDS.length), band, share: BANDS[band][0], name: BANDS[band][1] };
  }

  /** Engine rows of a pool. */
  engineRows(pool) {
    if (!this.members.has(pool)) {
      const { id } = this.state.pools[pool];
      this.members.set(pool, this.state.engines.flatMap((engine, row) => (engine.pool === id ? [row] : [])));
    }
    return this.members.get(pool);
  }

  /** Note that a column's values are others. */
  changed(index) {
    const slot = index % this.state.columns;
    for (const ring of this.rings.values()) ring.known[slot] = -1;
  }

  /** One value of a band in a column, NaN for unknown. */
  at(name, row, index) {
    if (!SERIES.includes(name)) return NaN;
    const { pool, band } = this.factsOf(row);
    const key = `${name} ${pool}`;
    if (!this.rings.has(key)) this.rings.set(key, this.#ring());
    const ring = this.rings.get(key);
    const slot = index % this.state.columns;
    if (ring.known[slot] !== index) this.#fill(ring, name, pool, index, slot);
    return ring.values[slot * BANDS.length + band];
  }

  #ring() {
    const { columns } = this.state;
    return { known: new Float64Array(columns).fill(-1), values: new Float32Array(columns * BANDS.length) };
  }

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
