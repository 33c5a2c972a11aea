import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  NARROW,
  ago,
  clock,
  count,
  duration,
  durationPair,
  longAgo,
  percentText,
  rate,
  short,
  times,
  whole,
} from './format.js';

test('unknown is a dash and never a zero', () => {
  for (const format of [short, whole, duration, percentText, rate, times, clock, ago]) {
    assert.equal(format(NaN), '—');
    assert.equal(format(null), '—');
  }
});

test('two durations share the unit of the longer one', () => {
  assert.deepEqual(durationPair(0.456, 0.991), ['456', `991${NARROW}ms`]);
  assert.deepEqual(durationPair(0.653, 2.65), ['0.65', `2.65${NARROW}s`]);
  assert.deepEqual(durationPair(41.3, 152), [`41.3${NARROW}s`, `2${NARROW}min 32${NARROW}s`]);
  assert.deepEqual(durationPair(NaN, NaN), ['—', '—']);
});

test('a clock that runs ahead gives just now, not a negative age', () => {
  assert.equal(ago(-3), 'just now');
  assert.equal(ago(98.7), `98${NARROW}s ago`);
  assert.equal(longAgo(3 * 3600 + 1250), `3${NARROW}h 20${NARROW}min ago`);
});

test('nouns agree with their number', () => {
  assert.equal(count(1, 'event'), '1 event');
  assert.equal(count(3, 'event'), '3 events');
});

test('the time of day is UTC', () => {
  assert.equal(clock(Date.UTC(2026, 0, 1, 3, 13, 18) / 1000), '03:13:18');
});
