import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoff } from './live_socket.js';

test('the wait doubles and stays under ten seconds', () => {
  assert.deepEqual(
    [0, 1, 2, 3].map((attempt) => backoff(attempt, 0.5)),
    [500, 1000, 2000, 4000],
  );
  assert.ok(backoff(30, 1) <= 10000);
});

test('viewers of one server do not come back at the same moment', () => {
  assert.notEqual(backoff(2, 0.1), backoff(2, 0.9));
});
