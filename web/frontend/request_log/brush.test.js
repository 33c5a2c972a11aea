import assert from 'node:assert/strict';
import test from 'node:test';
import { brushed, fieldTime } from './brush.js';

test('a drag in either direction selects the time between', () => {
  assert.deepEqual(brushed(1000_000, 1900_000, 0.5, 0.1), { since: 1090, until: 1450 });
  assert.deepEqual(brushed(1000_000, 1900_000, 0.1, 0.5), { since: 1090, until: 1450 });
});

test('a drag beyond the edge ends at the edge', () => {
  assert.deepEqual(brushed(1000_000, 1900_000, 0.9, 1.7), { since: 1810, until: 1900 });
});

test('a click selects nothing', () => {
  assert.equal(brushed(1000_000, 1900_000, 0.5, 0.501), null);
});

test('fields show moments in UTC', () => {
  assert.equal(fieldTime(1_800_000_000), '2027-01-15 08:00:00');
});
