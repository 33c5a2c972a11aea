import assert from 'node:assert/strict';
import { test } from 'node:test';
import { timeTicks } from '../charts/time_axis.js';
import { chartName, cvTop, onTimeBottom } from './line_charts.js';

test('the CV range grows in steps and ignores unknown values', () => {
  assert.equal(cvTop([0.2, NaN, 0.9]), 1);
  assert.equal(cvTop([2.49]), 3);
  assert.equal(cvTop([21.3]), 22);
});

test('the on-time range opens downward in steps', () => {
  assert.equal(onTimeBottom([0.99, NaN]), 0.8);
  assert.equal(onTimeBottom([0.61]), 0.5);
  assert.equal(onTimeBottom([0.1]), 0);
});

test('a chart name includes its values and its line', () => {
  assert.equal(
    chartName('Load CV', ['chat 0.31', 'code —'], 'uneven from 0.80'),
    'Load CV: chat 0.31, code —; uneven from 0.80',
  );
  assert.equal(chartName('Load CV', ['chat 0.31'], ''), 'Load CV: chat 0.31');
});

test('the chart name counts the pools that it omits', () =>
  assert.equal(
    chartName('On time', ['a 1', 'b 2', 'c 3', 'd 4', 'e 5'], ''),
    'On time: a 1, b 2, c 3, d 4, 1 more pool',
  ));

test('ticks are on whole minutes', () =>
  assert.deepEqual(
    timeTicks(30, 300).map(([label]) => label),
    ['00:01:00', '00:02:00', '00:03:00', '00:04:00', '00:05:00'],
  ));
