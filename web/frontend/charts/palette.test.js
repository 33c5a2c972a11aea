import assert from 'node:assert/strict';
import { test } from 'node:test';
import { heatTable, rgb } from './palette.js';

test('the table starts and ends at the outer stops and passes through the inner ones', () => {
  const table = heatTable([rgb('#000000'), rgb('#ff8000'), rgb('#ffffff')]);
  assert.deepEqual([...table.slice(0, 3)], [0, 0, 0]);
  assert.deepEqual([...table.slice(-3)], [255, 255, 255]);
  assert.ok(Math.abs(table[128 * 3] - 255) <= 1);
});
