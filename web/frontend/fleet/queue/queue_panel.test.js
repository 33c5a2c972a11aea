import assert from 'node:assert/strict';
import { test } from 'node:test';
import { foldedWords, rowSummary, rowTop } from './queue_panel.js';

const series = {
  bound: new Float32Array([3, 4]),
  unbound: new Float32Array([9, NaN]),
  rejected: new Float32Array([NaN, NaN]),
};
const whole = (value) => (Number.isNaN(value) ? '—' : String(value));
const bar = (name) => ({ name, words: name });

test('stacked bars fit on the axis', () => {
  assert.equal(rowTop({ bars: [bar('bound'), bar('unbound')], lines: [], least: 5 }, series), 20);
  assert.equal(rowTop({ bars: [], lines: [bar('bound'), bar('unbound')], least: 5 }, series), 10);
  assert.equal(rowTop({ bars: [bar('rejected')], lines: [], least: 1 }, series), 1);
});

test('a summary has the current and the highest value', () => {
  const plan = { bars: [bar('bound'), bar('rejected')], lines: [], figure: whole, unit: 'requests' };
  assert.equal(
    rowSummary(plan, { bound: 4, rejected: NaN }, series),
    'Queued requests: bound 4, at most 4; rejected —.',
  );
});

test('the summary of failed requests names them, and a folded queue counts them', () => {
  const plan = { bars: [bar('bound')], lines: [], figure: whole, unit: 'requests', title: 'Failed requests' };
  assert.match(rowSummary(plan, { bound: 4 }, series), /^Failed requests: bound 4/);
  const folded = foldedWords({ bound: 0, unbound: 0, rejected: 0, codes: [], failed: 31 });
  assert.equal(folded, '0 bound and 0 unbound requests queued; 31 failed; none rejected');
});

test('a folded queue shows queued requests and rejection reasons', () => {
  assert.equal(
    foldedWords({ bound: 3, unbound: 0, rejected: 0, codes: [] }),
    '3 bound and 0 unbound requests queued; none rejected',
  );
  assert.match(
    foldedWords({ bound: NaN, unbound: 1, rejected: 2, codes: [['queue_full', 2]] }),
    /^— bound .*; rejected 2\.0\u202f\/s: queue full/,
  );
});
