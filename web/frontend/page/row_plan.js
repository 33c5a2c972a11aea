/* Which engines are shown, in which order. */

export const SORTS = ['name', 'load'];

/** Peak outstanding seconds of an engine over the columns kept; −1 when nothing is known. */
export function peakSeconds(state, row) {
  return state.series((index) => state.engineAt('seconds', row, index))
    .reduce((peak, value) => (value > peak ? value : peak), -1);
}

/**
 * Groups of rows: [{pool, rows}], `pool` and `rows` being places in state.pools and state.engines.
 * `poolId` '' shows all pools; `sort` is one of SORTS, load meaning the highest peak first.
 */
export function rowPlan(state, poolId, sort) {
  const plan = [];
  state.pools.forEach((pool, place) => {
    if (poolId && pool.id !== poolId) return;
    const rows = state.engines.flatMap((engine, row) => (engine.pool === pool.id ? [row] : []));
    if (sort === 'load') {
      const peaks = new Map(rows.map((row) => [row, peakSeconds(state, row)]));
      rows.sort((one, other) => peaks.get(other) - peaks.get(one) || one - other);
    }
    plan.push({ pool: place, rows });
  });
  return plan;
}
