import assert from 'node:assert/strict';
import { test } from 'node:test';

import { localWords, untilWords } from './when.js';

test('a countdown has at most two units and ends at now', () => {
  assert.equal(untilWords(90_000), 'in 1\u202fd 1\u202fh');
  assert.equal(untilWords(7200), 'in 2\u202fh');
  assert.equal(untilWords(725), 'in 12\u202fmin 5\u202fs');
  assert.equal(untilWords(0.2), 'now');
  assert.equal(untilWords(-5), 'now');
});

test('a UTC moment has a local time if it differs', () => {
  const at = Date.parse('2027-01-31T23:30Z');
  assert.equal(localWords(at, 'UTC'), '');
  assert.equal(localWords(at, 'Europe/Berlin'), '2027-02-01 00:30 your time');
  assert.equal(localWords(NaN, 'Europe/Berlin'), '');
});
