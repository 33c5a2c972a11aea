import assert from 'node:assert/strict';
import { test } from 'node:test';
import { previewWords } from './override_preview.js';

const BOUNDS = { now: 8, least: 4, most: 12 };

test('a number says how many engines it starts or drains', () => {
  assert.equal(previewWords('12', BOUNDS), 'Starts 4 engines (8 → 12).');
  assert.equal(previewWords(' 7 ', BOUNDS), 'Drains 1 engine (8 → 7).');
  assert.equal(previewWords('8', BOUNDS), 'Changes nothing now: there are 8 engines.');
});

test('a number outside the bounds, or none, says what is allowed', () => {
  for (const typed of ['99', '3', '0'])
    assert.equal(previewWords(typed, BOUNDS), 'Not allowed: the live policy allows 4 to 12.');
  for (const typed of ['', '-4', 'many']) assert.equal(previewWords(typed, BOUNDS), 'Enter a number from 4 to 12.');
});
