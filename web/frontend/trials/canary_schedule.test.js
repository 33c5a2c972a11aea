import assert from 'node:assert/strict';
import { test } from 'node:test';
import { canarySchedule, totalWords } from './canary_schedule.js';

const typed = { steps: '5, 25, 50', dwell: '300', advance: 'by_hand' };

test('each step starts when the earlier ones have lasted their duration', () => {
  assert.deepEqual(canarySchedule(typed, NaN, 40), [
    { share: 0.05, startS: 0 },
    { share: 0.25, startS: 300 },
    { share: 0.5, startS: 600 },
    { share: 1, startS: 900 },
  ]);
});

test('a step with few requests lasts until each version has enough', () => {
  const starts = canarySchedule(typed, 1, 40)?.map(({ startS }) => startS);
  assert.deepEqual(starts, [0, 800, 1100, 1400]);
});

test('a form that the server rejects has no schedule', () => {
  for (const steps of ['', '50, 25', '0, 5', '5, 100', 'abc', '1,2,3,4,5,6,7,8,9,10,11'])
    assert.equal(canarySchedule({ ...typed, steps }, NaN, 40), null, steps);
  for (const dwell of ['', '-1', 'x']) assert.equal(canarySchedule({ ...typed, dwell }, NaN, 40), null, dwell);
});

test('the total says who advances', () => {
  assert.equal(totalWords(900, 'by_hand'), 'At least 15\u202fmin in total. You start each step. You promote it.');
  assert.match(totalWords(900, 'promote'), /Promotion follows by itself\.$/);
});
