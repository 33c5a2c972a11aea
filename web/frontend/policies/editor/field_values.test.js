import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pieceOfText, rangeProblem, sameText, textOfValue, valueAt } from './field_values.js';

test('numbers enter the document as typed', () => {
  assert.deepEqual(
    ['8', ' 8.0 ', '2e-9', '-1'].map((text) => pieceOfText(text, 'number')),
    ['8', '8.0', '2e-9', '-1'],
  );
});

test('other texts enter as strings, which the server rejects by path', () => {
  assert.deepEqual(
    ['abc', '1,000', '01', 'NaN', '+1', '1.'].map((text) => pieceOfText(text, 'whole')),
    ['"abc"', '"1,000"', '"01"', '"NaN"', '"+1"', '"1."'],
  );
});

test('an empty control is omitted, a switch never', () => {
  assert.equal(pieceOfText('  ', 'number'), null);
  assert.deepEqual([pieceOfText('on', 'switch'), pieceOfText('', 'switch')], ['true', 'false']);
});

test('values convert back to the text of their control', () => {
  assert.deepEqual(
    [
      textOfValue(8, 'number'),
      textOfValue('abc', 'number'),
      textOfValue(undefined, 'number'),
      textOfValue(true, 'switch'),
    ],
    ['8', 'abc', '', 'on'],
  );
  assert.equal(textOfValue(0.00008, 'number'), '0.00008');
});

test('equal numbers are the same however they are written; texts are not', () => {
  assert.ok(sameText('8.0', '8', 'number'));
  assert.ok(sameText('2e-9', '0.000000002', 'number'));
  assert.ok(!sameText('8.0', '8', 'choice'));
  assert.ok(!sameText('', '0', 'number'));
});

test('a path uses own members only', () => {
  assert.equal(valueAt({ a: { b: 1 } }, 'a.b'), 1);
  for (const path of ['a.c', 'toString', 'a.b.c', '__proto__']) assert.equal(valueAt({ a: { b: 1 } }, path), undefined);
});

test('a number outside the range is reported with the allowed range', () => {
  const share = { kind: 'number', low: '0', high: '1', aboveLow: '', range: 'above 0, up to 1' };
  assert.deepEqual(
    ['0.5', '1', '', '0', '1.4', '-1', 'abc'].map((text) => rangeProblem(text, share)),
    [
      '',
      '',
      '',
      '0 is too low. Allowed: above 0, up to 1.',
      '1.4 is too high. Allowed: above 0, up to 1.',
      '-1 is too low. Allowed: above 0, up to 1.',
      'abc is not a number. Allowed: above 0, up to 1.',
    ],
  );
  assert.equal(rangeProblem('1.5', { kind: 'whole', low: '1', high: '' }), '1.5 is not a whole number.');
  assert.equal(rangeProblem('9', { kind: 'whole', low: '1', high: '' }), '');
  assert.equal(rangeProblem('x', { kind: 'text' }), '');
});
