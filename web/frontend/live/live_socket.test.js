import assert from 'node:assert/strict';
import { test } from 'node:test';
import { backoff, LiveSocket } from './live_socket.js';

test('the backoff doubles up to ten seconds', () => {
  assert.deepEqual(
    [0, 1, 2, 3].map((attempt) => backoff(attempt, 0.5)),
    [500, 1000, 2000, 4000],
  );
  assert.ok(backoff(30, 1) <= 10000);
});

test('viewers of one server reconnect with jitter', () => {
  assert.notEqual(backoff(2, 0.1), backoff(2, 0.9));
});

test('a lost connection is reopened, a signed-out one is not', (context) => {
  /** @type {any[]} */
  const opened = [];
  class FakeWebSocket {
    constructor() {
      opened.push(this);
    }
  }
  /** @type {Record<string, unknown>} */
  const browser = { WebSocket: FakeWebSocket, document: { addEventListener() {} }, addEventListener() {} };
  for (const [name, value] of Object.entries(browser)) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  }
  context.mock.timers.enable({ apis: ['setTimeout'] });
  /** @type {string[]} */
  const statuses = [];
  new LiveSocket('ws://here', { onFrame: () => {}, onStatus: (status) => statuses.push(status) });
  opened[0].onclose({ code: 1006 });
  assert.equal(opened.length, 1);
  context.mock.timers.tick(10_000);
  assert.equal(opened.length, 2);
  opened[1].onopen();
  opened[1].onclose({ code: 4401 });
  context.mock.timers.tick(10_000);
  assert.equal(opened.length, 2);
  assert.deepEqual(statuses, ['reconnecting', 'live', 'signed-out']);
});
