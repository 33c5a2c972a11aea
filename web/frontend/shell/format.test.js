import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  NARROW,
  ago,
  clock,
  count,
  duration,
  durationPair,
  durationParts,
  percentText,
  rate,
  setting,
  short,
  times,
  whole,
} from './format.js';

test('tokens are short with three significant digits at most', () => {
  assert.deepEqual([0, 640, 999.6, 3600, 9949, 9951, 128000, 981000, 1.2e6, 45e6].map(short), [
    '0',
    '640',
    '1.0k',
    '3.6k',
    '9.9k',
    '10k',
    '128k',
    '0.98M',
    '1.2M',
    '45M',
  ]);
});

test('unknown is a dash and never a zero', () => {
  for (const format of [short, whole, duration, percentText, rate, times, clock, ago]) {
    assert.equal(format(NaN), '—');
    assert.equal(format(null), '—');
  }
});

test('durations change unit at 1 ms, 1 s and 1 min', () => {
  assert.deepEqual(durationParts(0.00042), ['420', 'µs']);
  assert.deepEqual(durationParts(0.084), ['84', 'ms']);
  assert.deepEqual(durationParts(2.314), ['2.31', 's']);
  assert.deepEqual(durationParts(41.26), ['41.3', 's']);
  assert.equal(duration(152), `2${NARROW}min 32${NARROW}s`);
  assert.equal(duration(6 * 86400 + 4 * 3600), `6${NARROW}d 4${NARROW}h`);
  assert.equal(duration(3600), `1${NARROW}h`);
});

test('two durations share the unit of the longer one', () => {
  assert.deepEqual(durationPair(0.456, 0.991), ['456', `991${NARROW}ms`]);
  assert.deepEqual(durationPair(0.653, 2.65), ['0.65', `2.65${NARROW}s`]);
  assert.deepEqual(durationPair(NaN, NaN), ['—', '—']);
});

test('no rounding shows 1,000 ms or 60.0 s', () => {
  assert.deepEqual(durationParts(0.99996), ['1.00', 's']);
  assert.deepEqual(durationParts(59.97), ['1', 'min']);
});

test('a clock that runs ahead gives just now, not a negative age', () => {
  assert.equal(ago(-3), 'just now');
  assert.equal(ago(98.7), `98${NARROW}s ago`);
});

test('negative numbers carry a true minus', () => {
  assert.equal(whole(-1204), '\u22121,204');
  assert.equal(short(-3600), '\u22123.6k');
});

test('a setting has no trailing zeros', () => {
  assert.deepEqual([3.5, 5, 0.25, 12].map(setting), [`3.5${NARROW}s`, `5${NARROW}s`, `250${NARROW}ms`, `12${NARROW}s`]);
});

test('nouns agree with their number', () => {
  assert.equal(count(1, 'event'), '1 event');
  assert.equal(count(3, 'event'), '3 events');
});

test('rates keep one decimal while they are small', () => {
  assert.deepEqual([0.52, 9.94, 118.4, 1204].map(rate), ['0.5', '9.9', '118', '1,204']);
});

test('the time of day is UTC', () => {
  assert.equal(clock(Date.UTC(2026, 0, 1, 3, 13, 18) / 1000), '03:13:18');
});
