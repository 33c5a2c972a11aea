import assert from 'node:assert/strict';
import { test } from 'node:test';
import { reportWords } from './status_line.js';

test('reports are counted by age, missing reports separately', () => {
  assert.equal(reportWords([0.1, 2.9, 8, NaN]), '2 fresh, 1 old, 1 without a report');
  assert.equal(reportWords([0.1]), '1 fresh');
});
