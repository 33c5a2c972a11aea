import assert from 'node:assert/strict';
import test from 'node:test';
import { newsWords, rowIndex } from './tap.js';

test('the button counts waiting rows, up to the limit', () => {
  assert.equal(newsWords(1), '1 new');
  assert.equal(newsWords(41), '41 new');
  assert.equal(newsWords(300), '300+ new');
});

test('a row is inserted by arrival, however late it was stored', () => {
  assert.equal(rowIndex('2026-11-22T09:12:50.000', ['2026-11-22T09:12:51.000', '2026-11-22T09:12:49.000']), 1);
  assert.equal(rowIndex('2026-11-22T09:12:52.000', ['2026-11-22T09:12:51.000']), 0);
  assert.equal(rowIndex('2026-11-22T09:12:48.000', ['2026-11-22T09:12:51.000']), 1);
  assert.equal(rowIndex('x', []), 0);
});
