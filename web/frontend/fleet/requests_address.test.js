import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lostAddress, requestsAddress } from './fleet_figures.js';

test('a figure links to its requests in its pool and time', () => {
  const live = { poolId: 'chat', since: 1_000_030, until: 0 };
  assert.equal(requestsAddress('late=1', live), '/requests?late=1&pool=chat&since=1000020');
  assert.equal(
    requestsAddress('state=rejected', { ...live, poolId: '', until: 1_000_330.5 }),
    '/requests?state=rejected&since=1000020&until=1000331',
  );
  assert.equal(requestsAddress('state=running', live), '/requests?state=running&pool=chat');
});

test('a lost engine links to the requests that were on it', () => {
  assert.equal(lostAddress('e 1', 1_000_000.5), '/requests?engine=e+1&late=1&since=999400&until=1000002');
});
