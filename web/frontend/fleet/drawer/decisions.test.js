import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clockTenths, decisionStory, timeSpent } from './decisions.js';

test('TTFT is split into queue and engine time', () => {
  const spent = timeSpent([
    { ttft_s: 1, queued_s: 0.4 },
    { ttft_s: 3, queued_s: 0.6 },
    { ttft_s: null, queued_s: 9 },
  ]);
  assert.equal(spent.count, 2);
  assert.ok(Math.abs(spent.queue - 0.5) < 1e-9 && Math.abs(spent.engine - 1.5) < 1e-9);
  assert.equal(timeSpent([{ ttft_s: null, queued_s: 1 }]), null);
});

test('a decision is described in sentences', () => {
  const explained = {
    engine_name: 'e-1',
    reason_words: 'it was next',
    decided_at: 0,
    decision: {
      prompt_tokens: 4096,
      hit_tokens: 1024,
      queued_s: 0.02,
      candidates: [
        { engine_id: 'a', hit_tokens: 1024, wait_s: 0.1, compute_s: 0.2, cost: 0.5 },
        { engine_id: 'b', hit_tokens: 0, wait_s: 0, compute_s: 0.4, cost: 0.9 },
      ],
    },
    outcome: { state: 'completed', error: '', first_token_after_s: 4.2, on_time: false, cached_tokens: 512 },
  };
  const story = decisionStory(explained, (id) => ({ a: 'e-1' })[id] ?? id);
  assert.equal(story.title, 'Sent to e-1: it was next.');
  assert.match(
    story.why,
    /^1,024 of 4,096 prompt tokens expected cached. b came second, with a cost of 0.90 against 0.50.$/,
  );
  assert.equal(
    story.happened,
    'The request waited 20\u202fms at the gateway. First token after 4.20\u202fs, late. ' +
      'The engine reported 512 cached.',
  );
  assert.deepEqual(
    story.candidates.map(({ name, chosen }) => [name, chosen]),
    [
      ['e-1', true],
      ['b', false],
    ],
  );
});

test('a decision for two engines names the decode engine and its reason', () => {
  const { why } = decisionStory(
    {
      engine_name: 'p-1',
      reason_words: 'it was next',
      decode_engine_name: 'd-1',
      pair_reason_words: 'its time between tokens was least',
      decided_at: 0,
      decision: {
        prompt_tokens: 1,
        hit_tokens: 0,
        queued_s: 0,
        candidates: [],
        pair: { engine_id: 'd', tpot_s: 0.03 },
      },
      outcome: { state: 'running', error: '', first_token_after_s: null, on_time: null, cached_tokens: null },
    },
    (id) => id,
  );
  assert.match(why, /cached\. d-1 answers: its time between tokens was least; 30\u202fms per token expected\.$/);
});

test('an overtaking request shows its reason', () => {
  const story = (overtook) =>
    decisionStory(
      {
        engine_name: 'e-1',
        reason_words: 'it was next',
        queue_reason_words: 'it had waited longest',
        decided_at: 0,
        decision: { prompt_tokens: 1, hit_tokens: 0, queued_s: 2, overtook, candidates: [] },
        outcome: { state: 'running', error: '', first_token_after_s: null, on_time: null, cached_tokens: null },
      },
      (id) => id,
    ).happened;
  assert.match(
    story(0),
    /^The request waited 2\.00\u202fs at the gateway; it was dispatched next, because it had waited longest\. /,
  );
  assert.match(story(2), /; it overtook 2 older requests, because/);
});

test('decisions carry tenths of a second', () => assert.equal(clockTenths(45.67), '00:00:45.6'));
