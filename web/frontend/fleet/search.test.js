import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decisionId, findEngines } from './search.js';

const engines = [
  { id: 'eng-3', name: 'gpu-e-1' },
  { id: 'eng-1', name: 'e-1' },
  { id: 'eng-2', name: 'E-17' },
  { id: 'x-e-1', name: 'other' },
];

test('the best match is first', () => assert.deepEqual(findEngines(engines, ' e-1 '), [1, 2, 0, 3]));
test('an empty search has no matches', () => assert.deepEqual(findEngines(engines, '  '), []));

test('a decision id is distinguished from an engine name', () => {
  assert.equal(decisionId(' 01A1F9E4-df78-77e0-85da-84316064982b '), '01a1f9e4-df78-77e0-85da-84316064982b');
  assert.equal(decisionId('01a1f9e4-df78'), '01a1f9e4-df78');
  for (const words of ['e-17', 'chat-70b', '', '01a1f9e4']) assert.equal(decisionId(words), '');
});
