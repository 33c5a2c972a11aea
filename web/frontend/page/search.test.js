import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findEngines } from './search.js';

const engines = [{ id: 'eng-3', name: 'gpu-e-1' }, { id: 'eng-1', name: 'e-1' }, { id: 'eng-2', name: 'E-17' }, { id: 'x-e-1', name: 'other' }];

test('the best match stands first', () => assert.deepEqual(findEngines(engines, ' e-1 '), [1, 2, 0, 3]));
test('no words find nothing', () => assert.deepEqual(findEngines(engines, '  '), []));
