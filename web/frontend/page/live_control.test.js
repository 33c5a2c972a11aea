import assert from 'node:assert/strict';
import { test } from 'node:test';

import { liveWords } from './live_control.js';

test('each status has words with its age', () => {
  const facts = { at: 3 * 3600 + 14 * 60 + 10, silenceS: 4.7, behindS: 41.2 };
  assert.equal(liveWords('live', facts), 'Live');
  assert.equal(liveWords('paused', facts), 'Paused 03:14:10, 41\u202fs behind');
  assert.equal(liveWords('reconnecting', facts), 'Reconnecting, 4\u202fs');
  assert.equal(liveWords('silent', facts), 'No sample for 4\u202fs');
});
