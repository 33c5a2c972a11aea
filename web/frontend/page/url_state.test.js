import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readUrl, writeUrl } from './url_state.js';

test('an address survives reading and writing', () => {
  for (const search of ['', '?pool=p1', '?pool=p1&engine=e-17&sort=load&view=table']) assert.equal(writeUrl(readUrl(search)), search);
});

test('an unknown sort falls back to the usual one', () => assert.equal(readUrl('?sort=colour').sort, 'name'));
