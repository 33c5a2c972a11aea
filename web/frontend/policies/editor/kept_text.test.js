import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dropText, keepText, keptText, markSubmitted, settleSubmitted } from './kept_text.js';

const LIVE = { user: 'op', slug: 'p', draft: '' };
const FIVE = { ...LIVE, draft: '5' };
const kept = { text: '{}', message: 'm', base: '2' };

function storage() {
  const values = new Map();
  return {
    getItem: (key) => values.get(key) ?? null,
    setItem: (key, value) => {
      values.set(key, value);
    },
    removeItem: (key) => {
      values.delete(key);
    },
    size: () => values.size,
  };
}

test('a text is kept per person, policy and draft', () => {
  const store = storage();
  keepText(store, LIVE, kept, 1);
  assert.equal(keptText(store, LIVE).text, '{}');
  assert.equal(keptText(store, FIVE), null);
  assert.equal(keptText(store, { ...LIVE, user: 'other' }), null);
  dropText(store, LIVE);
  assert.equal(keptText(store, LIVE), null);
});

test('a submitted text is deleted only if the response is another page', () => {
  const store = storage();
  keepText(store, LIVE, kept, 1);
  markSubmitted(store, LIVE);
  settleSubmitted(store, LIVE);
  assert.equal(keptText(store, LIVE).text, '{}', 'the same page again: it was not stored');
  markSubmitted(store, LIVE);
  settleSubmitted(store, FIVE);
  assert.equal(keptText(store, LIVE), null);
  assert.equal(store.size(), 0);
});

test('full, forbidden or invalid storage causes no error', () => {
  const full = {
    ...storage(),
    setItem: () => {
      throw new Error('full');
    },
  };
  keepText(full, LIVE, kept, 1);
  assert.equal(keptText(full, LIVE), null);
  const forbidden = {
    getItem: () => {
      throw new Error('no');
    },
    setItem: () => {
      throw new Error('no');
    },
    removeItem: () => {
      throw new Error('no');
    },
  };
  keepText(forbidden, LIVE, kept, 1);
  settleSubmitted(forbidden, LIVE);
  dropText(forbidden, LIVE);
  assert.equal(keptText(forbidden, LIVE), null);
  const spoiled = storage();
  spoiled.setItem('headway.policy.op.p.live', '{"text": 3}');
  assert.equal(keptText(spoiled, LIVE), null);
});

test('a text too long for a policy is not kept', () => {
  const store = storage();
  keepText(store, LIVE, { ...kept, text: 'x'.repeat(70_000) }, 1);
  assert.equal(store.size(), 0);
});
