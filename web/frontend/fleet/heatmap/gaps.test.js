import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstSampled, gapsOf } from './gaps.js';

const sampled = (columns) => ({ columns: columns.length, first: 10, hasSample: (index) => columns[index - 10] === 1 });

test('the beginning of the record is the first column in which anyone was heard', () => {
  assert.equal(firstSampled(sampled([0, 0, 1, 1])), 2);
  assert.equal(firstSampled(sampled([1, 1])), 0);
  assert.equal(firstSampled(sampled([0, 0])), 2);
});

test('a gap lies between what was heard; before the first column there is none', () => {
  assert.deepEqual(gapsOf(sampled([0, 1, 0, 0, 1, 0, 1])), [
    [2, 4],
    [5, 6],
  ]);
  assert.deepEqual(gapsOf(sampled([0, 0, 0])), []);
});

test('a view that was lost has a gap at its right end, an unfinished column is none', () => {
  assert.deepEqual(gapsOf(sampled([1, 1, 0, 0, 0])), [[2, 5]]);
  assert.deepEqual(gapsOf(sampled([1, 1, 1, 0])), []);
});
