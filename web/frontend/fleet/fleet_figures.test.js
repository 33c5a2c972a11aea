import assert from 'node:assert/strict';
import { test } from 'node:test';
import { extreme, incidentLinks, missedWords, tileFigures, weightedMean } from './fleet_figures.js';

test('a mean is weighted and omits unknown values', () => {
  assert.equal(weightedMean([1, 0], [3, 1]), 0.75);
  assert.equal(weightedMean([1, NaN], [3, 100]), 1);
  assert.ok(Number.isNaN(weightedMean([NaN], [1])));
  assert.ok(Number.isNaN(weightedMean([0.5], [0])));
});

test('extremes have their index and skip unknown values', () => {
  assert.deepEqual(extreme([NaN, 0.9, 0.4, 0.7], -1), { value: 0.4, index: 2 });
  assert.equal(extreme([NaN, NaN], 1), null);
});

const values = {
  late: [0, 0],
  failed: [0, 0],
  rejected: [0, NaN],
  on_time: [0.8, 1],
  requests_per_s: [30, 10],
  hit: [0.5, 0.9],
  prompt_tokens_per_s: [1000, 3000],
  unbound: [2, 3],
  oldest_wait_s: [0.4, 1.5],
  ttft_p50_s: [0.6, 0.2],
  ttft_p90_s: [2.31, 0.9],
  ttft_p99_s: [4.9, 1.2],
  cv: [0.58, 0.2],
  bound: [3, 0],
  dispatched_at_once_per_s: [1, 1],
  dispatched_waited_per_s: [1, 1],
  migrations_per_s: [0, 0],
  overtaken_per_s: [0, 0],
  rejections_per_s: [0, 0],
};
const state = {
  pools: [
    { id: 'p-chat', name: 'chat', ttft_slo_s: 5 },
    { id: 'p-agents', name: 'agents', ttft_slo_s: 5 },
  ],
  first: 0,
  windowS: 15,
  columnS: 2,
  engines: [{ pool: 'p-chat' }],
  verdict: { late_pool_id: '' },
  nowOf: () => 2.5,
  rejectionsNow: () => ({ queue_full: 0.5 }),
  timeOf: (index) => index * 2,
  poolAt: (name, pool) => values[name][pool],
  poolNow: (name, pool) => values[name][pool],
  series: (read) => [read(0), read(1)],
};

test('of several pools, the share on time is that of the pool which the sentence is about', () => {
  const about = { ...state, verdict: { late_pool_id: 'p-chat' } };
  const [onTime] = tileFigures(about, [0, 1], 0, false, 0.9);
  assert.deepEqual([onTime.label, onTime.figure, onTime.mark], ['On time, chat', '80.0', 'lost']);
  assert.equal(tileFigures(about, [0], 0)[0].label, 'On time, ≤ 5\u202fs');
  assert.equal(tileFigures(about, [0, 1], 0, true)[0].figure, '85.0');
  assert.equal(tileFigures(about, [0, 1], 1)[0].figure, '85.0');
});

test('tiles add up sums and name the pool of percentiles', () => {
  const [onTime, ttft, hit, cv, requests, queue] = tileFigures(state, [0, 1], 0, false, 0.9);
  assert.equal(onTime.figure, '85.0');
  assert.equal(onTime.mark, 'lost');
  assert.match(ttft.note, /, chat$/);
  assert.equal(hit.figure, '80.0');
  assert.equal(cv.figure, '0.58');
  assert.equal(requests.figure, '4.0');
  assert.deepEqual(
    [onTime.window, requests.window, cv.window, queue.window],
    ['15\u202fs', '15\u202fs', '4\u202fs', 'now'],
  );
  assert.equal(queue.figure, '8');
  assert.equal(queue.unit, '5 unbound');
  assert.equal(queue.note, 'oldest 2.50\u202fs');
});

test('the queue tile shows why requests are rejected', () => {
  values.rejections_per_s = [0.5, 0];
  const queue = tileFigures(state, [0], 0)[5];
  values.rejections_per_s = [0, 0];
  assert.equal(queue.mark, 'hot');
  assert.equal(queue.note, 'rejected: queue full 0.5\u202f/s');
});

test('requests are dispatched plus rejected, or ended where another router routes', () => {
  const figure = (changes) => {
    const changed = { ...values, ...changes };
    const read = (name, pool) => changed[name][pool];
    return tileFigures({ ...state, poolAt: read, poolNow: read }, [0], 0)[4].figure;
  };
  assert.equal(figure({ rejections_per_s: [3, 0] }), '5.0');
  assert.equal(figure({ dispatched_at_once_per_s: [NaN, 1] }), '30');
  assert.equal(figure({ dispatched_at_once_per_s: [0, 1], dispatched_waited_per_s: [0, 1] }), '30');
});

test('the tiles of a past range have totals of the range and figures of its end', () => {
  const [first, last] = [{ ...values, on_time: [1, 1], dispatched_at_once_per_s: [5, 1] }, values];
  const past = {
    ...state,
    index: 1,
    last: 1,
    spanS: 3600,
    poolAt: (name, pool, index) => [first, last][index][name][pool],
    nowOf: () => NaN,
  };
  const [onTime, , hit, cv, requests, queue] = tileFigures(past, [0, 1], 0, true);
  assert.deepEqual([onTime.figure, hit.figure, requests.figure], ['92.5', '80.0', '6.0']);
  assert.deepEqual(
    [onTime.window, requests.window, cv.window, queue.window],
    ['1\u202fh', '1\u202fh', 'at 00:00:04', 'at 00:00:04'],
  );
  assert.equal(queue.note, 'oldest unbound 1.50\u202fs');
  const bound = (name, pool) => (name.startsWith('unbound') || name === 'oldest_wait_s' ? 0 : values[name][pool]);
  assert.equal(tileFigures({ ...past, poolAt: bound, poolNow: bound }, [0], 0, true)[5].note, 'ages not stored');
});

test('one pool in scope needs no name in the labels', () => {
  assert.equal(tileFigures(state, [1], 1)[3].label, 'Load CV');
  assert.deepEqual(
    [0, 0.999].map((target) => tileFigures(state, [0], 0, false, target)[0].mark),
    ['', 'lost'],
  );
});

test('late, failed and rejected requests are counted apart, and those without are omitted', () => {
  assert.equal(missedWords([34, 31, 12]), '34 late, 31 failed, 12 rejected');
  assert.equal(missedWords([0, 3, NaN]), '3 failed');
  const missed = { ...values, late: [2, 1], failed: [31, 0] };
  const poolNow = (name, pool) => missed[name][pool];
  assert.equal(tileFigures({ ...state, poolNow }, [0, 1], 0)[0].note, '3 late, 31 failed');
});

test('the CV peak names its column width', () => {
  const note = (columnS) => tileFigures({ ...state, columnS }, [0, 1], 0)[3].note;
  assert.match(note(1), /^peak 0\.58, /);
  assert.match(note(30), /^peak 0\.58 per 30\u202fs, /);
});

test('links to late requests and the incident begin at the onset, minus one minute for the incident', () => {
  const links = incidentLinks(10_000, 'pool a', 1_000.7);
  assert.equal(links.late, '/requests?late=1&pool=pool+a&since=1000');
  assert.equal(links.incident, '?pool=pool+a&end=1240');
  assert.equal(incidentLinks(1_030, 'pool', 1_000).incident, '?pool=pool&end=1030');
});
