import assert from 'node:assert/strict';
import test from 'node:test';
import { newsWords } from './tap.js';

test('the button says how many wait, up to what is kept', () => {
  assert.equal(newsWords(1), '1 new');
  assert.equal(newsWords(41), '41 new');
  assert.equal(newsWords(300), '300 new and more');
});
