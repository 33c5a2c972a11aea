/* The six tiles: totals of the pools in scope. Percentiles of several pools cannot be added up,
   so those and the CV are of the focused pool, named in the label. */

import {
  NARROW,
  clock,
  duration,
  durationPair,
  percent,
  percentText,
  rate,
  ratio,
  setting,
  short,
  whole,
} from '../shell/format.js';
import { stepWords } from '../shell/span_words.js';
import { queueFigures, rejectionText } from './queue/queue_figures.js';
/** @import { FleetState } from '../live/fleet_state.js' */

/**
 * Return the mean of `values` weighted by `weights` without unknown ones; NaN if none is left.
 * @param {number[]} values
 * @param {number[]} weights
 */
export function weightedMean(values, weights) {
  let sum = 0;
  let weight = 0;
  values.forEach((value, index) => {
    if (Number.isNaN(value) || !(weights[index] > 0)) return;
    sum += value * weights[index];
    weight += weights[index];
  });
  return weight ? sum / weight : NaN;
}

/**
 * @param {number[]} values
 */
const total = (values) => values.reduce((sum, value) => (Number.isNaN(value) ? sum : (sum || 0) + value), NaN);

/**
 * Return the extreme of a series, {value, index}, null if all values are unknown; `sign` 1 highest, −1 lowest.
 * @param {number[]} series
 * @param {1 | -1} sign
 */
export function extreme(series, sign) {
  /** @type {{ value: number, index: number } | null} */
  let best = null;
  for (const [index, value] of series.entries()) {
    if (!Number.isNaN(value) && (best === null || sign * value > sign * best.value)) best = { value, index };
  }
  return best;
}

/**
 * Return dispatched plus rejected requests per second; ended requests where the gateway reports only those
 * (web/live/verdict.py).
 * @param {(name: string, pool: number) => number} value
 * @param {number} pool
 */
function handledPerS(value, pool) {
  const dispatched = value('dispatched_at_once_per_s', pool) + value('dispatched_waited_per_s', pool);
  const handled = dispatched + (value('rejections_per_s', pool) || 0);
  // Nothing is dispatched here where another router routes.
  return Number.isNaN(dispatched) || handled === 0 ? value('requests_per_s', pool) : handled;
}

/**
 * Return figures over the pools in scope from `value(name, pool)`.
 * `pools` are rows of the state, `focus` is the focused one.
 * @param {(name: string, pool: number) => number} value
 * @param {number[]} pools
 * @param {number} focus
 */
export function scopeFigures(value, pools, focus) {
  /**
   * @param {string} name
   */
  const read = (name) => pools.map((pool) => value(name, pool));
  return {
    onTime: weightedMean(read('on_time'), read('requests_per_s')),
    hit: weightedMean(read('hit'), read('prompt_tokens_per_s')),
    requests: total(pools.map((pool) => handledPerS(value, pool))),
    promptTokens: total(read('prompt_tokens_per_s')),
    unbound: total(read('unbound')),
    bound: total(read('bound')),
    waiting: total([...read('unbound'), ...read('bound')]),
    rejected: total(read('rejections_per_s')),
    missed: MISSED.map((name) => total(read(name))),
    oldest: Math.max(...read('oldest_wait_s').map((wait) => (Number.isNaN(wait) ? -1 : wait))),
    p50: value('ttft_p50_s', focus),
    p90: value('ttft_p90_s', focus),
    p99: value('ttft_p99_s', focus),
    cv: value('cv', focus),
  };
}

/** @typedef {Exclude<keyof ReturnType<typeof scopeFigures>, 'missed'>} ScopeFigure */

/**
 * Return the series of the same figures, oldest first.
 * @param {FleetState} state
 * @param {number[]} pools
 * @param {number} focus
 * @returns {Record<ScopeFigure, number[]>}
 */
export function scopeSeries(state, pools, focus) {
  const columns = state.series((index) => scopeFigures((name, pool) => state.poolAt(name, pool, index), pools, focus));
  const names = /** @type {ScopeFigure[]} */ (Object.keys(columns[0]).filter((name) => name !== 'missed'));
  const series = names.map((name) => [name, columns.map((figures) => figures[name])]);
  return /** @type {Record<ScopeFigure, number[]>} */ (Object.fromEntries(series));
}

/**
 * Of the figures those that add up over time, over all columns: as the sentence about a past stretch
 * (web/history/past_verdict.py).
 * @param {FleetState} state
 * @param {number[]} pools
 * @param {Record<ScopeFigure, number[]>} series
 */
function stretchFigures(state, pools, series) {
  /**
   * @param {string} name
   */
  const all = (name) => pools.flatMap((pool) => state.series((index) => state.poolAt(name, pool, index)));
  /**
   * @param {number[]} values
   */
  const mean = (values) => total(values) / values.filter((value) => !Number.isNaN(value)).length;
  return {
    onTime: weightedMean(all('on_time'), all('requests_per_s')),
    hit: weightedMean(all('hit'), all('prompt_tokens_per_s')),
    requests: mean(series.requests),
    promptTokens: mean(series.promptTokens),
  };
}

/**
 * Return the note of the queue tile: why requests are rejected, else the wait of the oldest.
 * @param {FleetState} state
 * @param {number[]} pools
 * @param {Record<ScopeFigure, number>} now
 */
function queueNote(state, pools, { waiting, bound, unbound, oldest, rejected }) {
  if (rejected > 0) return `rejected: ${rejectionText(queueFigures(state, pools).codes, 1)}`;
  if (!(waiting > 0)) return Number.isNaN(waiting) ? 'no data' : 'none queued';
  const ids = new Set(pools.map((pool) => state.pools[pool].id));
  const waits = state.engines.map((engine, row) => (ids.has(engine.pool) ? state.nowOf('oldest_s', row) : NaN));
  // The past stores no ages of bound requests.
  if (bound > 0 && waits.every(Number.isNaN))
    return unbound > 0 ? `oldest unbound ${duration(oldest)}` : 'ages not stored';
  return `oldest ${duration(waits.reduce((most, wait) => (wait > most ? wait : most), oldest))}`;
}

/** Ways to miss an objective, three different things. */
const MISSED = ['late', 'failed', 'rejected'];

/**
 * Return "34 late, 31 failed, 12 rejected", without those that are 0; '' if there are none.
 * @param {number[]} missed by MISSED
 */
export const missedWords = (missed) =>
  missed.flatMap((count, index) => (count > 0 ? [`${whole(count)} ${MISSED[index]}`] : [])).join(', ');

/**
 * The tiles in page order: {label, window, title, figure, unit, note, mark, spark}; mark is '', 'hot' or 'lost'. Of a
 * `past` stretch they say what the stretch as a whole was, and where that is unknown, what was at its end. Below
 * `target` the on-time share is marked.
 * @param {FleetState} state
 * @param {number[]} pools
 * @param {number} focus
 */
export function tileFigures(state, pools, focus, past = false, target = NaN) {
  const series = scopeSeries(state, pools, focus);
  const now = scopeFigures((name, pool) => state.poolNow(name, pool), pools, focus);
  if (past) Object.assign(now, stretchFigures(state, pools, series));
  /** @param {ScopeFigure} name */
  const last = (name) => now[name];
  /** @param {{ index: number }} point */
  const when = (point) => clock(state.timeOf(state.first + point.index));
  const slos = new Set(pools.map((pool) => state.pools[pool].ttft_slo_s));
  const named = pools.length > 1 ? `, ${state.pools[focus].name}` : '';
  // Where the sentence is about one of several pools, so is the share on time.
  const late = named && !past ? state.verdict.late_pool_id : '';
  const about = late && late === state.pools[focus].id ? [focus] : pools;
  const judged = about === pools ? now : scopeFigures((name, pool) => state.poolNow(name, pool), about, focus);
  const onTimes = about === pools ? series.onTime : scopeSeries(state, about, focus).onTime;
  const low = extreme(onTimes, -1);
  const peak = extreme(series.cv, 1);
  // Longer columns hold means, which have a lower peak.
  const perStep = state.columnS > 1 ? ` per ${stepWords(state.columnS)}` : '';
  const [p50, p90] = durationPair(last('p50'), last('p90'));
  const lately = state.windowS > 0 ? `${whole(state.windowS)}${NARROW}s` : stepWords(state.columnS);
  const tiles = [
    {
      label:
        about !== pools
          ? `On time${named}`
          : slos.size === 1
            ? `On time, ≤ ${setting([...slos][0])}`
            : 'On time, by pool SLO',
      figure: percent(judged.onTime),
      unit: '%',
      spark: onTimes,
      note:
        (!past && missedWords(judged.missed)) || (low ? `low ${percentText(low.value)}, ${when(low)}` : 'no requests'),
      mark: judged.onTime < target ? 'lost' : '',
    },
    {
      label: 'TTFT p50, p90',
      figure: p50,
      unit: p90,
      note: `p99 ${duration(last('p99'))}${named}`,
      spark: series.p90,
      mark: '',
    },
    {
      label: 'Hit rate, reported',
      figure: percent(last('hit')),
      unit: '%',
      spark: series.hit,
      mark: '',
      note: Number.isNaN(last('hit')) ? 'no data' : `${percentText(1 - last('hit'))} recomputed`,
    },
    {
      label: named ? `CV${named}` : 'Load CV',
      figure: ratio(last('cv')),
      unit: '',
      spark: series.cv,
      mark: '',
      note: peak ? `peak ${ratio(peak.value)}${perStep}, ${when(peak)}` : 'idle',
    },
    {
      label: 'Requests',
      figure: rate(last('requests')),
      unit: '/s',
      spark: series.requests,
      mark: '',
      note: `${short(last('promptTokens'))} prompt tok/s`,
    },
    {
      label: 'Queued requests',
      figure: whole(last('waiting')),
      unit: last('unbound') > 0 ? `${whole(last('unbound'))} unbound` : '',
      spark: series.waiting,
      note: queueNote(state, pools, now),
      mark: now.rejected > 0 ? 'hot' : '',
    },
  ];
  /** @param {string} window */
  const lasts = (window) => ({ window, title: `over the last ${window}` });
  const stretch = { window: stepWords(state.spanS), title: 'over the whole time shown' };
  const end = { window: `at ${clock(state.timeOf(state.last + 1))}`, title: 'at the end of the time shown' };
  const windows = past
    ? [stretch, end, stretch, end, stretch, end]
    : [lasts(lately), lasts(lately), lasts(lately), lasts(`4${NARROW}s`), lasts(lately), { window: 'now', title: '' }];
  return tiles.map((tile, index) => ({ ...tile, ...windows[index] }));
}

/** Maximum end of an incident view after its onset, such that five minutes also show the minute before. */
const INCIDENT_S = 240;

/**
 * Return the address of the late requests, and of the minutes around the onset.
 * @param {number} now unix seconds of the newest sample
 * @param {string} poolId
 * @param {number} since unix seconds
 */
export function incidentLinks(now, poolId, since) {
  const end = Math.floor(Math.min(now, since + INCIDENT_S));
  return {
    late: `/requests?${new URLSearchParams({ late: '1', pool: poolId, since: String(Math.floor(since)) })}`,
    incident: `?${new URLSearchParams({ pool: poolId, end: String(end) })}`,
  };
}

/**
 * Return the address of the requests behind a figure: of its pool, in the time shown.
 * @param {string} query
 * @param {{ poolId: string, since: number, until: number }} shown unix seconds; `until` is 0 in a live view
 */
export function requestsAddress(query, { poolId, since, until }) {
  const parameters = new URLSearchParams(query);
  if (poolId) parameters.set('pool', poolId);
  // Running requests have no past.
  if (parameters.get('state') !== 'running') {
    // Whole minutes, so that the address of a live view rarely changes.
    parameters.set('since', String(Math.floor(since / 60) * 60));
    if (until) parameters.set('until', String(Math.ceil(until)));
  }
  return `/requests?${parameters}`;
}

/** Seconds before the loss of an engine in which the requests on it arrived, at most. */
const ON_IT_S = 600;

/**
 * Return the address of the requests that were on an engine when it was lost.
 * @param {string} engineId
 * @param {number} lostS unix seconds
 */
export function lostAddress(engineId, lostS) {
  const times = { since: String(Math.floor(lostS) - ON_IT_S), until: String(Math.ceil(lostS) + 1) };
  return `/requests?${new URLSearchParams({ engine: engineId, late: '1', ...times })}`;
}
