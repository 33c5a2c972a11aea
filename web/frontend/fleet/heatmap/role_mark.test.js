import assert from 'node:assert/strict';
import { test } from 'node:test';
import { labelled, roleMark } from './role_mark.js';

test('only engines of one role have a mark', () => {
  assert.deepEqual(
    ['prefill', 'decode', 'mixed', '', undefined].map((role) => roleMark({ role })),
    ['P', 'D', '', '', ''],
  );
  assert.equal(labelled({ name: 'e-1', role: 'decode' }), 'e-1 D');
  assert.equal(labelled({ name: 'e-1', role: 'mixed' }), 'e-1');
  assert.equal(labelled(undefined), undefined);
});
