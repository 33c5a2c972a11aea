import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rowWords } from './rows.js';

test('an engine is idle only without any request', () => {
  assert.equal(rowWords('serving', 0, 0), 'idle');
  assert.equal(rowWords('serving', 0, 33), '');
  assert.equal(rowWords('serving', 500, 1), '');
});

test('an engine that takes no work is described in a word', () => {
  assert.equal(rowWords('lost', 500, 3), 'lost');
  assert.equal(rowWords('draining', 0, 2), 'draining');
  assert.equal(rowWords('draining', 0, 0), 'drained');
  assert.equal(rowWords('maintenance', 0, 0), 'maintenance');
});
