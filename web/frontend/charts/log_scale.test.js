import assert from 'node:assert/strict';
import { test } from 'node:test';
import { heatPosition } from './log_scale.js';

test('an idle engine is at the low end and four SLOs at the high end', () => {
  assert.equal(heatPosition(0, 3.5), 0);
  assert.equal(heatPosition(14, 3.5), 1);
  assert.equal(heatPosition(140, 3.5), 1);
});

test('the position grows with the wait by the stated formula', () => {
  assert.ok(heatPosition(0.5, 5) < heatPosition(1, 5));
  assert.ok(Math.abs(heatPosition(5, 5) - Math.log(11) / Math.log(41)) < 1e-12);
});

test('unknown stays unknown', () => assert.ok(Number.isNaN(heatPosition(NaN, 5))));
