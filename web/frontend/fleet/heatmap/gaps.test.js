import assert from 'node:assert/strict';
import { test } from 'node:test';
import { firstHeard, gapsOf } from './gaps.js';

const heard = (columns) => ({ columns: columns.length, first: 10, heardAt: (index) => columns[index - 10] === 1 });

test('the beginning of the record is the first column in which anyone was heard', () => {
  assert.equal(firstHeard(heard([0, 0, 1, 1])), 2);
  assert.equal(firstHeard(heard([1, 1])), 0);
  assert.equal(firstHeard(heard([0, 0])), 2);
});

test('a gap lies between what was heard; before the first column there is none', () => {
  assert.deepEqual(gapsOf(heard([0, 1, 0, 0, 1, 0, 1])), [
    [2, 4],
    [5, 6],
  ]);
  assert.deepEqual(gapsOf(heard([0, 0, 0])), []);
});

test('a view that was lost has a gap at its right end, an unfinished column is none', () => {
  assert.deepEqual(gapsOf(heard([1, 1, 0, 0, 0])), [[2, 5]]);
  assert.deepEqual(gapsOf(heard([1, 1, 1, 0])), []);
});
