import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stepped } from './row_keys.js';

test('the first step enters the list at its near end', () => {
  assert.equal(stepped(-1, 1, 3), 0);
  assert.equal(stepped(-1, -1, 3), 2);
});

test('steps stay inside the list', () => {
  assert.equal(stepped(2, 1, 3), 2);
  assert.equal(stepped(0, -1, 3), 0);
  assert.equal(stepped(1, 1, 3), 2);
});

test('an empty list has no row', () => {
  assert.equal(stepped(-1, 1, 0), -1);
});
