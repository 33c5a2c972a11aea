import assert from 'node:assert/strict';
import test from 'node:test';
import { highest, roundTop, stretches, valueAt } from './series.js';

const steps = (points, hold = 10) => ({ points, hold, kind: 'step' });

test('a value holds until the next point or its limit', () => {
  const series = steps([
    [100, 4],
    [105, 6],
    [130, null],
  ]);
  assert.equal(valueAt(series, 104), 4);
  assert.equal(valueAt(series, 105), 6);
  assert.equal(valueAt(series, 115), 6);
  assert.ok(Number.isNaN(valueAt(series, 116)));
  assert.ok(Number.isNaN(valueAt(series, 99)));
  assert.ok(Number.isNaN(valueAt(series, 131)));
});

test('a step lasts until the next point or its hold, and a gap begins a new stretch', () => {
  const pieces = stretches(
    steps([
      [100, 4],
      [105, 6],
      [140, 5],
    ]),
    90,
    200,
  );
  assert.deepEqual(pieces, [
    [
      [100, 4],
      [105, 4],
      [105, 6],
      [115, 6],
    ],
    [
      [140, 5],
      [150, 5],
    ],
  ]);
});

test('an unknown point ends a stretch', () => {
  const pieces = stretches(
    {
      points: [
        [1, 1],
        [2, null],
        [3, 2],
        [4, 3],
      ],
      hold: 10,
      kind: 'line',
    },
    0,
    10,
  );
  assert.deepEqual(pieces, [
    [[1, 1]],
    [
      [3, 2],
      [4, 3],
    ],
  ]);
});

test('a line continues to the first point beyond the end, a step ends there', () => {
  const points = [
    [8, 1],
    [12, 2],
    [13, 3],
  ];
  assert.deepEqual(stretches({ points, hold: 10, kind: 'line' }, 0, 10), [
    [
      [8, 1],
      [12, 2],
    ],
  ]);
  assert.deepEqual(stretches(steps(points), 0, 10), [
    [
      [8, 1],
      [10, 1],
    ],
  ]);
});

test('the scale covers the highest value in the range only', () => {
  assert.equal(
    highest(
      [
        steps([
          [1, 50],
          [5, 7],
          [6, null],
        ]),
      ],
      4,
      10,
      1,
    ),
    7,
  );
  assert.equal(highest([steps([])], 0, 10, 1), 1);
  assert.deepEqual([0.4, 3, 13, 101, 1234].map(roundTop), [1, 4, 16, 200, 2000]);
});
