import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readUrl, writeUrl } from './url_state.js';

test('an address is the same after parsing and writing', () => {
  for (const search of [
    '',
    '?pool=p1',
    '?pool=p1&engine=e-17&sort=load&view=table',
    '?queue=folded',
    '?queue=open',
    '?engine=e-17&decision=d-1',
    '?range=1h',
    '?range=24h&end=1800000000',
    '?pool=p1&range=1h&end=1800000000&engine=e-17&fold=p1%2Cp2.0',
  ])
    assert.equal(writeUrl(readUrl(search)), search);
});

test('a decision is shown over its engine, and not without one', () =>
  assert.equal(writeUrl(readUrl('?decision=d-1')), ''));

test('an unknown sort falls back to the default', () => assert.equal(readUrl('?sort=colour').sort, 'name'));

test('an invalid range or end is ignored', () => {
  for (const search of ['?range=2h', '?range=toString', '?end=soon', '?end=-5', '?end=Infinity'])
    assert.equal(writeUrl(readUrl(search)), '');
});
