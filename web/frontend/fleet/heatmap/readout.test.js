import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cellParts, fleetParts, meanSeconds, median } from './readout.js';

test('the median omits unknown values', () => {
  assert.equal(median([3, NaN, 1, 2]), 2);
  assert.equal(median([4, 1]), 2.5);
  assert.ok(Number.isNaN(median([NaN])));
});

const tokens = [128000, 5000, 5200];
/** Before and within the last fifteen seconds. */
const means = [
  [0.9, 0.5],
  [0.1, 3.2],
  [0, 0],
];
const state = {
  at: 100,
  atS: 100,
  index: 50,
  last: 50,
  engines: [
    { name: 'e-1', pool: 'a', state: 'hot' },
    { name: 'e-2', pool: 'a', state: 'serving' },
    { name: 'e-3', pool: 'a', state: 'lost' },
  ],
  timeOf: (index) => index * 2,
  stateAt: (row, index) => (index < 10 ? '' : row === 0 ? 'hot' : 'serving'),
  columnS: 2,
  engineAt: (name, row, index) =>
    name === 'tokens' ? tokens[row] : name === 'mean_s' ? means[row][index > 44 ? 1 : 0] : 1,
  shareAt: () => NaN,
  nowOf: (name, row) => (name === 'tokens' ? tokens[row] : 0.4),
};

test('a cell is compared with its pool', () => {
  const parts = cellParts(state, { row: 0, index: 40 });
  assert.equal(parts[0][0], 'e-1, hot');
  assert.match(parts[3][1], /^5.2k tok, 25×$/);
  assert.deepEqual(parts[4], ['Hit', '—']);
});

test('a column without a sample has no data', () =>
  assert.match(cellParts(state, { row: 0, index: 3 })[0][1], /no data/));

test('a column after the removal of an engine names the removal', () => {
  const gone = { ...state, engines: [{ name: 'e-1', pool: 'a', state: 'removed', since: 80 }], stateAt: () => '' };
  assert.match(cellParts(gone, { row: 0, index: 40 })[0][1], /removed from the fleet$/);
  assert.match(cellParts(gone, { row: 0, index: 39 })[0][1], /no data$/);
});

test('without a cursor the readout names the busiest engine of the last 15 s, as the verdict does', () => {
  const parts = fleetParts(state, [0, 1, 2]);
  assert.ok(Math.abs(meanSeconds(state, 1) - (6 * 3.2 + 2 * 0.1) / 8) < 1e-9);
  assert.match(parts[1][1], /^e-2, 2\.4\d/);
  assert.deepEqual(parts.at(-1), ['Serving', '2 of 3']);
});
