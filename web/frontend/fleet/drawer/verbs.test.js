import assert from 'node:assert/strict';
import { test } from 'node:test';
import { question, verbsFor } from './verbs.js';

test('a serving engine can be drained, a drained one can return', () => {
  assert.deepEqual(
    verbsFor('ready').map(([state]) => state),
    ['draining', 'maintenance'],
  );
  assert.deepEqual(
    verbsFor('draining').map(([state]) => state),
    ['ready', 'maintenance'],
  );
  assert.deepEqual(
    verbsFor('maintenance').map(([state]) => state),
    ['ready'],
  );
});

test('the confirmation names the effects on the work, and the undo', () => {
  const drain = question('draining', 'e-08', { running: 19, bound: 4 });
  assert.equal(drain.title, 'Drain e-08?');
  assert.equal(drain.verb, 'Drain e-08');
  assert.equal(drain.effects[1], '19 in-flight requests finish; 4 queued requests move to other engines.');
  const effect = (running, bound) => question('draining', 'e-08', { running, bound }).effects[1];
  assert.equal(effect(1, 1), '1 in-flight request finishes; 1 queued request moves to another engine.');
  assert.equal(effect(0, 0), 'No in-flight requests; no queued requests.');
  assert.match(effect(NaN, NaN), /^In-flight requests are unknown/);
  const out = question('quarantine', 'e-08', { running: 2, bound: 1 });
  assert.equal(out.title, 'Quarantine e-08?');
  assert.equal(out.effects[1], '2 in-flight requests continue there; 1 queued request moves to another engine.');
  assert.match(out.effects.at(-1), /End quarantine/);
  assert.match(question('trust', 'e-08', { running: 0, bound: 0 }).effects.at(-1), /Quarantine/);
  for (const state of ['draining', 'maintenance'])
    assert.match(question(state, 'e-08', { running: 1, bound: 0 }).effects.at(-1), /Return to service/);
});
