import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rowPlan } from './row_plan.js';

const seconds = [[1, 2], [9, NaN], [3, 3], [0, 0]];
const state = {
  pools: [{ id: 'a' }, { id: 'b' }],
  engines: [{ pool: 'a' }, { pool: 'a' }, { pool: 'a' }, { pool: 'b' }],
  engineAt: (name, row, index) => seconds[row][index],
  series: (read) => [read(0), read(1)],
};

test('engines stand under their pool in the order of the topology', () => {
  assert.deepEqual(rowPlan(state, '', 'name'), [{ pool: 0, rows: [0, 1, 2] }, { pool: 1, rows: [3] }]);
});

test('by load the highest peak of the last minutes stands first', () => {
  assert.deepEqual(rowPlan(state, '', 'load')[0].rows, [1, 2, 0]);
});

test('a scope shows one pool', () => assert.deepEqual(rowPlan(state, 'b', 'name'), [{ pool: 1, rows: [3] }]));
