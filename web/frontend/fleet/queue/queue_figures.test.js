import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  queueFigures,
  queueParts,
  queueSeries,
  rejectionText,
  rejectionWord,
  scaleTop,
  stacked,
} from './queue_figures.js';

const values = {
  bound: [3, NaN],
  unbound: [1, 2],
  dispatched_at_once_per_s: [8, 2],
  dispatched_waited_per_s: [1, 1],
  migrations_per_s: [0, 0.5],
  rejections_per_s: [0.4, 0.1],
  overtaken_per_s: [NaN, NaN],
  queue_wait_p90_s: [1.5, 0.2],
  failed: [31, NaN],
};
const rejections = [{ queue_full: 0.1, infeasible: 0.3 }, { queue_full: 0.1 }];
const state = {
  columns: 2,
  first: 0,
  index: 1,
  pools: [{ name: 'chat' }, { name: 'agents' }],
  poolAt: (name, pool, index) => (index === 1 ? values[name][pool] : NaN),
  poolNow: (name, pool) => values[name][pool],
  rejectionsAt: (pool, index) => (index === 1 ? rejections[pool] : {}),
  rejectionsNow: (pool) => rejections[pool],
};

test('pools are summed without unknown values', () => {
  const figures = queueFigures(state, [0, 1]);
  assert.equal(figures.bound, 3);
  assert.equal(figures.unbound, 3);
  assert.equal(figures.atOnce, 10);
  assert.equal(figures.failed, 31);
  assert.ok(Number.isNaN(figures.overtaken));
  assert.deepEqual(
    figures.codes.map(([code]) => code),
    ['infeasible', 'queue_full'],
  );
});

test('a series is unknown where all pools are, and zero stays zero', () => {
  const series = queueSeries(state, [0]);
  assert.ok(Number.isNaN(series.bound[0]));
  assert.equal(series.bound[1], 3);
  assert.equal(series.migrated[1], 0);
});

test('rejection reasons are sorted by frequency, and an unknown code is shown as it is', () => {
  assert.equal(
    rejectionText([
      ['infeasible', 0.3],
      ['queue_full', 0.2],
    ]),
    'SLO-infeasible 0.3\u202f/s, queue full 0.2\u202f/s',
  );
  assert.match(
    rejectionText([
      ['a', 4],
      ['b', 3],
      ['c', 2],
      ['d', 1],
    ]),
    /c 2\.0\u202f\/s and 1 more$/,
  );
  assert.equal(rejectionWord('a_code_of_tomorrow'), 'a code of tomorrow');
  assert.equal(rejectionText([]), '');
});

test('the readout shows the queue of a moment, and unknown is no zero', () => {
  const parts = new Map(queueParts(state, [0, 1], 0, 1));
  assert.equal(parts.get('Failed'), '31');
  assert.equal(parts.get('Wait p90, chat'), '1.50\u202fs');
  assert.match(parts.get('Rejected'), /^0\.5\u202f\/s: SLO-infeasible 0\.3/);
  assert.equal(new Map(queueParts(state, [0], 0, 0)).get('Bound'), '—');
});

test('a scale ends at 1, 2 or 5 times a power of ten and does not shrink below its least', () => {
  assert.equal(scaleTop(5, [NaN, 0]), 5);
  assert.equal(scaleTop(5, [6], [11]), 20);
  assert.equal(scaleTop(1, [200]), 200);
  assert.equal(scaleTop(1, [0.2 + 0.1]), 1);
  assert.equal(scaleTop(1, [5001]), 10000);
});

test('two series are stacked', () => {
  assert.deepEqual([...stacked(new Float32Array([1, NaN, 2]), new Float32Array([2, 3, NaN]))], [3, 3, 2]);
});
