import assert from 'node:assert/strict';
import test from 'node:test';
import { chartRows, lowest, summary } from './chart_rows.js';
import { valueAt } from './series.js';
import { moments } from './twin.js';

const DATA = {
  from_s: 0,
  to_s: 300,
  column_s: 10,
  live: true,
  target: 0.9,
  band: [0.83, 1.2],
  marks: [],
  engines: [
    [0, 4, 0, 0],
    [290, 5, 1, 1],
  ],
  desired: [[200, 6]],
  quarantined: [[200, 0]],
  on_time: [
    [0, 1],
    [290, 0.7],
  ],
  demand: [[280, 2.4]],
  forecast: [[280, 3.1]],
  capacity: [[280, 3]],
  roles: [],
};

test('a pool without roles has no role rows', () => {
  assert.deepEqual(
    chartRows(DATA).map((row) => row.key),
    ['engines', 'on-time', 'work'],
  );
  const roles = [[280, 2, 2, 0.4, 0.6, 1.14]];
  assert.deepEqual(
    chartRows({ ...DATA, roles })
      .map((row) => row.key)
      .slice(3),
    ['roles', 'loads', 'imbalance'],
  );
});

test('scales cover the data and end at round numbers', () => {
  const [engines, onTime] = chartRows(DATA);
  assert.deepEqual([engines.bottom, engines.top], [0, 8]);
  assert.deepEqual([onTime.bottom, onTime.top, onTime.target], [0.5, 1, 0.9]);
  assert.deepEqual(
    [
      lowest([]),
      lowest([
        [0, null],
        [1, 0.85],
      ]),
      lowest([[0, 0.2]]),
    ],
    [0.8, 0.8, 0],
  );
});

test('a summary names the values, and the unknown ones', () => {
  const [engines] = chartRows(DATA);
  const at = (moment) => summary(engines, (series) => valueAt(series, moment));
  assert.equal(at(300), 'Engines: desired 6, running 5, draining 1, failed 1, quarantined 0');
  assert.equal(at(10), 'Engines: desired —, running 4, draining 0, failed 0, quarantined —');
});

test('the imbalance row has a band within its scale', () => {
  const rows = chartRows({ ...DATA, roles: [[280, 2, 2, 0.1, 2.6, 3.27]] });
  const { band, top, middle } = rows.at(-1);
  assert.deepEqual([band, top, middle], [[0.83, 1.2], 4, 1]);
});

test('the table has a bounded number of rows, newest first', () => {
  const day = moments({ from_s: 0, to_s: 86_400, column_s: 120 });
  assert.ok(day.length <= 241 && day.length > 200);
  assert.ok(day[0] > day.at(-1));
  assert.equal(moments(DATA).length, 31);
});
