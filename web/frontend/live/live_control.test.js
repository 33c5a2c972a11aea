import assert from 'node:assert/strict';
import { test } from 'node:test';

import { fieldMoment, fieldValue, liveWords, rangeWords } from './live_control.js';

test('each status has a label with its age', () => {
  const facts = { at: 3 * 3600 + 14 * 60 + 10, silenceS: 4.7, behindS: 41.2 };
  assert.equal(liveWords('live', facts), 'Live');
  assert.equal(liveWords('paused', facts), 'Paused 03:14:10, 41\u202fs behind');
  assert.equal(liveWords('reconnecting', facts), 'Reconnecting, 4\u202fs');
  assert.equal(liveWords('past', { ...facts, behindS: 7384 }), 'Past, 2\u202fh 3\u202fmin ago');
  assert.equal(liveWords('failed', facts), 'No history');
  assert.equal(liveWords('silent', facts), 'No sample for 4\u202fs');
});

test('the range includes days if the time alone is ambiguous', () => {
  const at = Date.UTC(2026, 10, 20, 3, 10, 30) / 1000;
  assert.equal(rangeWords(at, at + 300, at + 300), '03:10:30 – 03:15:30 UTC');
  assert.equal(rangeWords(at, at + 86_400, at + 86_400), '20 Nov 03:10 – 21 Nov 03:10 UTC');
  assert.equal(rangeWords(at, at + 300, at + 2 * 86_400), '20 Nov 03:10 – 20 Nov 03:15 UTC');
});

test('the end field is in UTC', () => {
  assert.equal(fieldMoment(fieldValue(1_800_000_000)), 1_800_000_000);
  assert.ok(Number.isNaN(fieldMoment('')));
});
