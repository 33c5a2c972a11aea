import assert from 'node:assert/strict';
import { test } from 'node:test';
import { previewWords } from './override_preview.js';

const BOUNDS = { now: 8, least: 4, most: 12 };

test('the preview counts the engines to start or drain', () => {
  assert.equal(previewWords('12', BOUNDS), 'Starts 4 engines (8 → 12).');
  assert.equal(previewWords(' 7 ', BOUNDS), 'Drains 1 engine (8 → 7).');
  assert.equal(previewWords('8', BOUNDS), 'No change: the pool has 8 engines.');
});

test('a number out of range, or no number, shows the allowed range', () => {
  for (const typed of ['99', '3', '0'])
    assert.equal(previewWords(typed, BOUNDS), 'Not allowed: the live policy allows 4 to 12.');
  for (const typed of ['', '-4', 'many']) assert.equal(previewWords(typed, BOUNDS), 'Enter a number from 4 to 12.');
});
