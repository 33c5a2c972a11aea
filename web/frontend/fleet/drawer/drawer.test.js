import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pillWords, poolMeasures } from './drawer.js';

test('the pill has the key figure of its state', () => {
  const facts = { at: 112, seconds: 10.6, left: 3 };
  assert.equal(pillWords({ state: 'serving', since: 0 }, facts), 'Serving');
  assert.equal(pillWords({ state: 'hot', since: 0 }, facts), 'Hot, 10.6\u202fs of work');
  assert.equal(pillWords({ state: 'draining', since: 0 }, facts), 'Draining, 3 left');
  assert.equal(pillWords({ state: 'draining', since: 0 }, { ...facts, left: 0 }), 'Drained');
  assert.equal(pillWords({ state: 'serving', since: 0, removed: true }, facts), 'Serving, removed since');
  assert.equal(pillWords({ state: 'removed', since: 0, removed: true }, facts), 'Removed');
  assert.equal(pillWords({ state: 'lost', since: 100 }, facts), 'Lost for 12.0\u202fs');
});

const tokens = [900, 300, 300, 5];
const state = {
  engines: [{ pool: 'a' }, { pool: 'a' }, { pool: 'a' }, { pool: 'b' }],
  nowOf: (name, row) => tokens[row],
  engineAt: (name, row) => tokens[row],
  series: (read) => [read(0)],
};

test('an engine is compared with its own pool only', () => {
  const [middle, ratio, share] = poolMeasures(state, 0);
  assert.equal(middle[1], '300 tok');
  assert.equal(ratio[1], '3.0×');
  assert.equal(share[1], '60.0');
});
