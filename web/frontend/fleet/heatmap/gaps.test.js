import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstSampled, gapsOf } from './gaps.js';

const sampled = (columns) => ({ columns: columns.length, first: 10, hasSample: (index) => columns[index - 10] === 1 });

test('the record begins at the first column with a sample', () => {
  assert.equal(firstSampled(sampled([0, 0, 1, 1])), 2);
  assert.equal(firstSampled(sampled([1, 1])), 0);
  assert.equal(firstSampled(sampled([0, 0])), 2);
});

test('a gap is between samples, not before the first one', () => {
  assert.deepEqual(gapsOf(sampled([0, 1, 0, 0, 1, 0, 1])), [
    [2, 4],
    [5, 6],
  ]);
  assert.deepEqual(gapsOf(sampled([0, 0, 0])), []);
});

test('a disconnected view has a gap at its right end, an unfinished column is none', () => {
  assert.deepEqual(gapsOf(sampled([1, 1, 0, 0, 0])), [[2, 5]]);
  assert.deepEqual(gapsOf(sampled([1, 1, 1, 0])), []);
});
