import assert from 'node:assert/strict';
import test from 'node:test';
import { healthSentence, healthWord } from './health.js';

test('a verdict names a degraded engine, and no other state', () => {
  assert.equal(healthWord({ state: 'degraded', reason: 'probation: no progress for 12 s' }), 'Returning');
  assert.equal(healthWord({ state: 'degraded', reason: 'probation: comes back' }), 'Returning');
  assert.equal(healthWord({ state: 'degraded', reason: '5 failures in a row' }), '');
  assert.equal(healthWord({ state: 'lost', reason: 'probation: gone' }), '');
  assert.equal(healthWord({ state: 'degraded', reason: undefined }), '');
});

test('the sentence omits unknown parts', () => {
  assert.equal(healthSentence({ word: 'Healthy', ends: '', share: '' }), 'Healthy.');
  assert.equal(
    healthSentence({ word: 'Returning', ends: 'all of its load in 12 s', share: '40 %' }),
    'Returning, all of its load in 12 s; gets 40 % of its load.',
  );
});
