/* A link is a state: scope, range and its end, open engine and decision, sort, folded pools and queue, and table are in
   the address. */

import { SORTS } from './heatmap/row_plan.js';
import { isRange } from '../live/timeline.js';
/** @import { End, Range } from '../live/timeline.js' */

/**
 * The state in an address.
 * @typedef {object} Address
 * @property {string} poolId '' for all pools
 * @property {string} engineId '' for none
 * @property {string} decisionId '' for none
 * @property {string} sort one of SORTS
 * @property {boolean} table
 * @property {string} queue 'open', 'folded', or '' without a choice
 * @property {Range} range
 * @property {End} end
 * @property {Set<string>} folds
 */

/** Choices for the queue rows; without one, the height decides. */
const QUEUES = ['open', 'folded'];
/** @type {Range} */
const LIVE_RANGE = '5m';

/**
 * Parse a query string; invalid parts are ignored.
 * @param {string} search
 * @returns {Address}
 */
export function readUrl(search) {
  const query = new URLSearchParams(search);
  const sort = query.get('sort');
  const queue = query.get('queue');
  const range = query.get('range');
  const end = Number(query.get('end') ?? '');
  return {
    poolId: query.get('pool') ?? '',
    engineId: query.get('engine') ?? '',
    decisionId: query.get('decision') ?? '',
    sort: sort !== null && SORTS.includes(sort) ? sort : SORTS[0],
    table: query.get('view') === 'table',
    queue: queue !== null && QUEUES.includes(queue) ? queue : '',
    range: isRange(range) ? range : LIVE_RANGE,
    end: end > 0 && Number.isFinite(end) ? end : '',
    folds: new Set((query.get('fold') ?? '').split(',').filter(Boolean)),
  };
}

/**
 * Return the query string of a state, without defaults.
 * @param {Address} address
 */
export function writeUrl({ poolId, engineId, decisionId, sort, table, queue, range, end, folds }) {
  const query = new URLSearchParams();
  if (poolId) query.set('pool', poolId);
  if (range !== LIVE_RANGE) query.set('range', range);
  if (end) query.set('end', String(end));
  if (engineId) query.set('engine', engineId);
  if (engineId && decisionId) query.set('decision', decisionId);
  if (sort !== SORTS[0]) query.set('sort', sort);
  if (folds?.size) query.set('fold', [...folds].join(','));
  if (table) query.set('view', 'table');
  if (queue) query.set('queue', queue);
  const text = query.toString();
  return text ? `?${text}` : '';
}
