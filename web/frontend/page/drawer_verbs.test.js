import assert from 'node:assert/strict';
import { test } from 'node:test';
import { question, verbsFor } from './drawer_verbs.js';

test('an engine that serves can be drained, one that does not can return', () => {
  assert.deepEqual(verbsFor('ready').map(([state]) => state), ['draining', 'maintenance']);
  assert.deepEqual(verbsFor('draining').map(([state]) => state), ['ready', 'maintenance']);
  assert.deepEqual(verbsFor('maintenance').map(([state]) => state), ['ready']);
});

test('the question says what happens to the work, and how to take it back', () => {
  const drain = question('draining', 'e-08', 3);
  assert.equal(drain.title, 'Drain e-08?');
  assert.equal(drain.verb, 'Drain e-08');
  assert.match(drain.effects[1], /^3 requests in flight/);
  assert.match(question('draining', 'e-08', 0).effects[1], /^No request in flight there now; it is empty at once/);
  for (const state of ['draining', 'maintenance']) assert.match(question(state, 'e-08', 1).effects.at(-1), /Return to service/);
});
