import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BANDS } from '../../live/band_series.js';
import { BAND_ENGINES, isFolded, nearest, rowPlan } from './row_plan.js';

const peaks = [2, 9, 5, 1];
const state = {
  pools: [{ id: 'a' }, { id: 'b' }],
  first: 0,
  index: 0,
  last: 0,
  engines: [
    { id: 'e0', pool: 'a', state: 'serving' },
    { id: 'e1', pool: 'a', state: 'serving' },
    { id: 'e2', pool: 'b', state: 'serving' },
    { id: 'e3', pool: 'a', state: 'serving' },
  ],
  engineAt: (name, row) => peaks[row],
};
const rows = (plan) => plan.map(({ pool, rows: shown }) => ({ pool, rows: shown }));

test('engines are below their pool in topology order', () => {
  assert.deepEqual(rows(rowPlan(state, {})), [
    { pool: 0, rows: [0, 1, 3] },
    { pool: 1, rows: [2] },
  ]);
});

test('sorted by load, the highest peak is first', () => {
  assert.deepEqual(rowPlan(state, { sort: 'load' })[0].rows, [1, 0, 3]);
});

test('a scope shows one pool', () => assert.deepEqual(rows(rowPlan(state, { poolId: 'b' })), [{ pool: 1, rows: [2] }]));

test('pools fold above 64 engines when asked, and above 256 unless asked', () => {
  const asked = new Set(['a']);
  assert.deepEqual(
    [64, 65, 256, 257].map((total) => isFolded('a', total, new Set())),
    [false, false, false, true],
  );
  assert.deepEqual(
    [64, 65, 256, 257].map((total) => isFolded('a', total, asked)),
    [false, true, true, false],
  );
});

const many = {
  pools: [{ id: 'a' }],
  first: 0,
  index: 0,
  last: 0,
  engines: Array.from({ length: 300 }, (_, row) => ({
    id: `e${row}`,
    pool: 'a',
    state: row === 7 ? 'lost' : 'serving',
  })),
  engineAt: (name, row) => row,
  bands: { rowOf: (pool, band) => 300 + band },
};

test('a large pool shows its bands below odd and open engines', () => {
  const bands = BANDS.map((_, band) => 300 + band);
  const [group] = rowPlan(many, {});
  assert.deepEqual(group.rows, [7, ...bands]);
  assert.deepEqual([group.folded, group.foldable, group.total], [true, true, 300]);
  assert.deepEqual(rowPlan(many, { engineId: 'e42' })[0].rows, [7, 42, ...bands]);
});

test('an opened band lists the engines nearest to it', () => {
  const [group] = rowPlan(many, { folds: new Set(['a.0']) });
  assert.deepEqual(group.rows.slice(0, 4), [7, 300, 299, 298]);
  assert.equal(group.rows.length, 1 + BANDS.length + BAND_ENGINES);
  const [unfolded] = rowPlan(many, { folds: new Set(['a']) });
  assert.equal(unfolded.rows.length, 300);
});

test('engines around a share exist at both ends', () => {
  const ranked = Array.from({ length: 100 }, (_, index) => index);
  assert.deepEqual(nearest(ranked, 1, 3), [0, 1, 2]);
  assert.deepEqual(nearest(ranked, 0, 3), [97, 98, 99]);
  assert.deepEqual(nearest(ranked, 0.5, 2), [49, 50]);
  assert.deepEqual(nearest([4, 5], 0.5, 10), [4, 5]);
});

test('a removed engine is neither odd nor counted', () => {
  const engines = many.engines.map((engine, row) => (row === 8 ? { ...engine, state: 'removed' } : engine));
  const [group] = rowPlan({ ...many, engines }, {});
  assert.deepEqual([group.rows[0], group.rows[1], group.total], [7, 300, 299]);
});
