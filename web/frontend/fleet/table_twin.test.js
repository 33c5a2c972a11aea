import assert from 'node:assert/strict';
import { test } from 'node:test';
import { everyFew, lineRow, tableRow } from './table_twin.js';

test('few columns are all shown, newest first', () => assert.deepEqual(everyFew(7, 3), { step: 1, places: [2, 1, 0] }));

test('of many columns the same ones are shown while time goes on', () => {
  const at = (first) => everyFew(first, 10, 4).places.map((place) => first + place);
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

test('the table says now, or what was at the cursor', () => {
  assert.deepEqual(tableRow(state, 0, null).slice(0, 5), ['e-1', 'hot', 'chat', '2', '2.00\u202fs']);
  assert.deepEqual(tableRow(state, 0, 4).slice(0, 5), ['e-1', 'lost', 'chat', '3', '3.00\u202fs']);
  assert.equal(tableRow(state, 0, 4).at(-1), '—');
});

test('unknown figures of a pool are dashes', () =>
  assert.deepEqual(lineRow(state, 0, 3), ['—', '—', '—', '—', '—', '—', '—', '4', '—']));
