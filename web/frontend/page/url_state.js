/* A link is a state: scope, open engine, sort and table are in the address. */

import { SORTS } from './row_plan.js';

/** Read {poolId, engineId, sort, table} from a query string; what is not understood is left out. */
export function readUrl(search) {
  const query = new URLSearchParams(search);
  const sort = query.get('sort');
  return {
    poolId: query.get('pool') ?? '',
    engineId: query.get('engine') ?? '',
    sort: SORTS.includes(sort) ? sort : SORTS[0],
    table: query.get('view') === 'table',
  };
}

/** The query string of a state; defaults are not written. */
export function writeUrl({ poolId, engineId, sort, table }) {
  const query = new URLSearchParams();
  if (poolId) query.set('pool', poolId);
  if (engineId) query.set('engine', engineId);
  if (sort !== SORTS[0]) query.set('sort', sort);
  if (table) query.set('view', 'table');
  const text = query.toString();
  return text ? `?${text}` : '';
}
