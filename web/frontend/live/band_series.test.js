import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BANDS, BandSeries, quantile } from './band_series.js';

test('a quantile is one of the values', () => {
  const sorted = Float32Array.from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.deepEqual(
    [0, 0.1, 0.5, 0.9, 1].map((share) => quantile(sorted, 10, share)),
    [1, 1, 5, 9, 10],
  );
  assert.ok(Number.isNaN(quantile(sorted, 0, 0.5)));
});

const make = () => {
  const state = {
    columns: 2,
    pools: [{ id: 'a' }, { id: 'b' }],
    engines: ['a', 'b', 'a', 'a'].map((pool) => ({ pool })),
  };
  const fill = (values) => Float32Array.from(values.flatMap((value) => [value, value * 10]));
  state.engineRing = { seconds: fill([3, 99, 1, NaN]), tokens: fill([300, 9900, 100, NaN]) };
  state.bands = new BandSeries(state);
  return state;
};

test('bands are over the sampled engines of their own pool', () => {
  const { bands } = make();
  const of = (pool, index) => BANDS.map((_, band) => bands.at('seconds', bands.rowOf(pool, band), index));
  assert.deepEqual(of(0, 0), [3, 3, 1, 1, 1]);
  assert.deepEqual(of(0, 1), [30, 30, 10, 10, 10]);
  assert.deepEqual(of(1, 0), [99, 99, 99, 99, 99]);
});

test('a changed column is recomputed, also one of another lap', () => {
  const state = make();
  const row = state.bands.rowOf(0, 0);
  assert.equal(state.bands.at('seconds', row, 0), 3);
  state.engineRing.seconds[0] = 7;
  assert.equal(state.bands.at('seconds', row, 0), 3);
  state.bands.changed(0);
  assert.equal(state.bands.at('seconds', row, 0), 7);
  state.engineRing.seconds[0] = 8;
  assert.equal(state.bands.at('seconds', row, 2), 8);
});

test('a band has a name, a share and no state of its own', () => {
  const { bands } = make();
  assert.deepEqual(bands.factsOf(bands.rowOf(1, 2)), { pool: 1, band: 2, share: 0.5, name: 'Median' });
  assert.ok(Number.isNaN(bands.at('kv', bands.rowOf(0, 0), 0)));
});
