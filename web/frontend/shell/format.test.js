import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  ago,
  clock,
  count,
  dayClock,
  duration,
  durationPair,
  longAgo,
  minuteClock,
  NARROW,
  percentText,
  rate,
  short,
  times,
  whole,
  withClocks,
  zoneName,
} from './format.js';

test('unknown is a dash and never a zero', () => {
  for (const format of [short, whole, duration, percentText, rate, times, clock, ago]) {
    assert.equal(format(NaN), '—');
    assert.equal(format(null), '—');
  }
});

test('two durations share the unit of the longer one', () => {
  assert.deepEqual(durationPair(0.456, 0.991), ['456', `991${NARROW}ms`]);
  assert.deepEqual(durationPair(0.653, 2.65), ['0.65', `2.65${NARROW}s`]);
  assert.deepEqual(durationPair(41.3, 152), [`41.3${NARROW}s`, `2${NARROW}min 32${NARROW}s`]);
  assert.deepEqual(durationPair(NaN, NaN), ['—', '—']);
});

test('a clock that runs ahead gives just now, not a negative age', () => {
  assert.equal(ago(-3), 'just now');
  assert.equal(ago(98.7), `98${NARROW}s ago`);
  assert.equal(longAgo(3 * 3600 + 1250), `3${NARROW}h 20${NARROW}min ago`);
});

test('nouns agree with their number', () => {
  assert.equal(count(1, 'event'), '1 event');
  assert.equal(count(3, 'event'), '3 events');
});

const AT = Date.UTC(2026, 0, 1, 3, 13, 18) / 1000;

/**
 * Return what the function returns on a page with this zone and clock.
 * @param {Record<string, string>} dataset
 * @param {() => unknown} words
 */
function onPage(dataset, words) {
  Object.assign(globalThis, { document: { documentElement: { dataset } } });
  try {
    return words();
  } finally {
    Reflect.deleteProperty(globalThis, 'document');
  }
}

test('without a page, times are in UTC on a 24-hour clock', () => {
  assert.equal(clock(AT), '03:13:18');
  assert.equal(minuteClock(AT), '03:13');
  assert.equal(dayClock(AT), '1 Jan 03:13');
  assert.equal(zoneName(), 'UTC');
  assert.equal(clock(Date.UTC(2026, 0, 1) / 1000), '00:00:00');
});

test('times are in the zone and on the clock of the page', () => {
  const words = () => [clock(AT), minuteClock(AT), dayClock(AT), zoneName()];
  const zone = 'America/New_York';
  assert.deepEqual(onPage({ timeZone: zone, clock: '24' }, words), ['22:13:18', '22:13', '31 Dec 22:13', zone]);
  const evening = [`10:13:18${NARROW}pm`, `10:13${NARROW}pm`, `31 Dec 10:13${NARROW}pm`, zone];
  assert.deepEqual(onPage({ timeZone: zone, clock: '12' }, words), evening);
  const midnight = () => clock(Date.UTC(2026, 0, 1, 0, 5) / 1000);
  assert.equal(onPage({ timeZone: 'UTC', clock: '12' }, midnight), `12:05:00${NARROW}am`);
});

test('sentences for all viewers show their times in the zone of the page', () => {
  const text = 'Since 2026-01-01T03:13:18+00:00: e-01 was lost at 2026-07-01T00:00:00+00:00.';
  const shown = onPage({ timeZone: 'Europe/Berlin', clock: '24' }, () => withClocks(text));
  assert.equal(shown, 'Since 04:13:18: e-01 was lost at 02:00:00.');
});
