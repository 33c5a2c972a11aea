import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everyFew, lineRow, tableRow } from './table_twin.js';

test('few columns are all shown, newest first', () =>
  assert.deepEqual(everyFew(7, 3), { step: 1, columns: [2, 1, 0] }));

test('of many columns the same ones stay shown as time advances', () => {
  const at = (first) => everyFew(first, 10, 4).columns.map((column) => first + column);
  assert.deepEqual(at(100), [108, 105, 102]);
  assert.deepEqual(at(101), [108, 105, 102]);
});

const state = {
  index: 9,
  pools: [{ name: 'chat' }],
  engines: [{ name: 'e-1', pool: 'a', state: 'hot', trust: 'exact' }],
  poolRow: () => 0,
  nowOf: (name) => (name === 'kv' ? 0.5 : 2),
  engineAt: () => 3,
  shareAt: () => 0.25,
  stateAt: () => 'lost',
  poolAt: (name) => (name === 'unbound' ? 4 : NaN),
};

test('the table shows the present or the moment of the cursor', () => {
  assert.deepEqual(tableRow(state, 0, null).slice(0, 5), ['e-1', 'hot', 'chat', '2', '2.00\u202fs']);
  assert.deepEqual(tableRow(state, 0, 4).slice(0, 5), ['e-1', 'lost', 'chat', '3', '3.00\u202fs']);
  assert.equal(tableRow(state, 0, 4).at(-1), '—');
});

/**
 * Two cells of the first row.
 * @param {object} changes
 * @param {number | null} index
 */
const cells = (changes, index) => {
  const row = tableRow({ ...state, ...changes }, 0, index);
  return { mean: row[5], oldest: row[8] };
};

test('the mean to go is that of the column, and a dash if unknown', () => {
  const engineAt = (name, row, index) => (name === 'mean_s' ? (index === 9 ? 0.5 : NaN) : 3);
  assert.equal(cells({ engineAt }, null).mean, '500\u202fms');
  assert.equal(cells({ engineAt }, 4).mean, '—');
});

test('the oldest queued request is a dash where there is none, and in the past', () => {
  const oldest = (bound) => ({ nowOf: (name) => (name === 'bound' ? bound : 2) });
  assert.equal(cells(oldest(3), null).oldest, '2.00\u202fs');
  assert.equal(cells(oldest(0), null).oldest, '—');
  assert.equal(cells(oldest(3), 4).oldest, '—');
});

test('unknown figures of a pool are dashes', () =>
  assert.deepEqual(lineRow(state, 0, 3), ['—', '—', '—', '—', '—', '—', '—', '4', '—', '—', '—']));
