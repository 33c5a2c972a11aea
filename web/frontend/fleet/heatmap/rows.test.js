import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rowFigures, rowWords } from './rows.js';

test('an engine is idle only without any request', () => {
  assert.equal(rowWords('serving', 0, 0), 'idle');
  assert.equal(rowWords('serving', 0, 33), '');
  assert.equal(rowWords('serving', 500, 1), '');
});

test('an engine that takes no work has a label', () => {
  assert.equal(rowWords('lost', 500, 3), 'lost');
  assert.equal(rowWords('draining', 0, 2), 'draining');
  assert.equal(rowWords('draining', 0, 0), 'drained');
  assert.equal(rowWords('maintenance', 0, 0), 'maintenance');
});

/** The peak of the newest cell, and the current value. */
const fleet = (peak, now, state = 'serving') => ({
  index: 9,
  engines: [{ state }],
  engineAt: (name, row, index) => (index === 9 ? peak[name] : NaN),
  nowOf: (name) => now[name] ?? 0,
});

test('the figures of a row are the peak of its newest cell, not those of the instant', () => {
  const state = fleet({ tokens: 20000, seconds: 1.9 }, { tokens: 0, seconds: 0, running: 4 });
  assert.deepEqual(rowFigures(state, 0), { words: '', tokens: '20k', seconds: '1.9\u202fs' });
});

test('a row without work has a label and no figure', () =>
  assert.deepEqual(rowFigures(fleet({ tokens: 0, seconds: 0 }, {}), 0), { words: 'idle', tokens: '', seconds: '' }));

test('a band has figures and no label', () => {
  const state = { ...fleet({ tokens: 0, seconds: 0 }, {}), engines: [] };
  assert.deepEqual(rowFigures(state, 0), { words: '', tokens: '0', seconds: '0.0\u202fs' });
});
