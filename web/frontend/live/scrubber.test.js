import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endAround, endAt } from './scrubber.js';

const now = 10_000;

test('a window is centred on the click', () => assert.equal(endAround(8000, 300, 6400, now), 8150));

test('a window that ends now follows the present', () => {
  assert.equal(endAround(9900, 300, 6400, now), '');
  assert.equal(endAt(now - 3, 300, 6400, now), '');
  assert.equal(endAt(now - 30, 300, 6400, now), now - 30);
});

test('a window stays within the strip', () => assert.equal(endAround(6400, 300, 6400, now), 6700));
