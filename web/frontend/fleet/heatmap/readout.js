/* The fixed line above the picture: the cell under the cursor, or the fleet at this moment. */

import { ago, clock, count, duration, percentText, short, times, whole } from '../../shell/format.js';
import { byId, make } from '../../shell/element.js';
/** @import { FleetState } from '../../live/fleet_state.js' */
/** @import { View } from '../view.js' */

/**
 * Return the median of the known values, NaN without any.
 * @param {number[]} values
 */
export function median(values) {
  const known = values.filter((value) => !Number.isNaN(value)).sort((one, other) => one - other);
  if (!known.length) return NaN;
  const middle = known.length >> 1;
  return known.length % 2 ? known[middle] : (known[middle - 1] + known[middle]) / 2;
}

/**
 * Return the line of a band cell: its values, and its number of engines.
 * @param {FleetState} state
 * @param {{ row: number, index: number }} cell
 */
function bandParts(state, { row, index }) {
  const { pool, name } = state.bands.factsOf(row);
  const tokens = state.engineAt('tokens', row, index);
  const when = clock(state.timeOf(index));
  const engines = count(state.bands.engineRows(pool).length, 'engine');
  const title = `${state.pools[pool].name}, ${name.toLowerCase()} of ${engines}`;
  if (Number.isNaN(tokens)) return [[title, `${when}, no data`]];
  return [
    [title, `${when}, ${ago(state.atS - state.timeOf(index))}`],
    ['In flight', `${short(tokens)} tok, ${duration(state.engineAt('seconds', row, index))}`],
    [
      'Running, queued',
      `${whole(state.engineAt('running', row, index))}, ${whole(state.engineAt('bound', row, index))}`,
    ],
  ];
}

/**
 * Return the line of one cell as [label, value] pairs; the first has name and moment.
 * @param {FleetState} state
 * @param {{ row: number, index: number }} cell
 */
export function cellParts(state, { row, index }) {
  const engine = state.engines[row];
  if (!engine) return bandParts(state, { row, index });
  const peers = state.engines.flatMap((peer, peerRow) => (peer.pool === engine.pool ? [peerRow] : []));
  const tokens = state.engineAt('tokens', row, index);
  const middle = median(peers.map((peer) => state.engineAt('tokens', peer, index)));
  const compared = middle > 0 && !Number.isNaN(tokens) ? `, ${times(tokens / middle)}` : '';
  const stateWord = state.stateAt(row, index);
  const name = stateWord && stateWord !== 'serving' ? `${engine.name}, ${stateWord}` : engine.name;
  const gone = engine.state === 'removed' && state.timeOf(index) >= engine.since;
  if (!stateWord) return [[name, `${clock(state.timeOf(index))}, ${gone ? 'removed from the fleet' : 'no data'}`]];
  return [
    [name, `${clock(state.timeOf(index))}, ${ago(state.atS - state.timeOf(index))}`],
    ['In flight', `${short(tokens)} tok, ${duration(state.engineAt('seconds', row, index))} to go`],
    [
      'Running, queued',
      `${whole(state.engineAt('running', row, index))}, ${whole(state.engineAt('bound', row, index))}`,
    ],
    ['Pool median', `${short(middle)} tok${compared}`],
    ...(state.columnS > 2 ? [['Mean', duration(state.engineAt('mean_s', row, index))]] : []),
    ['Hit', percentText(state.shareAt('hit', row, index))],
    ['KV', percentText(state.shareAt('kv', row, index))],
  ];
}

/** The server rates engines by their mean work over the same time (web/live/recent_state.py). */
export const MEAN_S = 15;

/**
 * Return the mean in-flight seconds of an engine over the last MEAN_S, NaN if unknown.
 * @param {FleetState} state
 * @param {number} row
 */
export function meanSeconds(state, row) {
  const columns = Math.max(1, Math.ceil(MEAN_S / state.columnS));
  const known = Array.from({ length: columns }, (_, back) => state.engineAt('mean_s', row, state.last - back)).filter(
    (value) => !Number.isNaN(value),
  );
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/**
 * Return the line without a selected cell: the fleet now, or at the end of the past shown.
 * @param {FleetState} state
 * @param {number[]} rows
 */
export function fleetParts(state, rows, past = false) {
  const tokens = rows.map((row) => state.nowOf('tokens', row));
  const means = rows.map((row) => meanSeconds(state, row));
  const busiest = rows.reduce((best, row, index) => (means[index] > best.mean ? { row, mean: means[index] } : best), {
    row: rows[0],
    mean: 0,
  });
  const serving = rows.filter((row) => ['serving', 'hot', 'degraded'].includes(state.engines[row].state)).length;
  return [
    [past ? 'At' : 'Now', clock(state.at)],
    [
      `Busiest over ${MEAN_S} s`,
      busiest.mean > 0 ? `${state.engines[busiest.row].name}, ${duration(busiest.mean)}` : 'none',
    ],
    ['Median', duration(median(means))],
    ['All', `${short(tokens.reduce((sum, value) => sum + value, 0))} tok`],
    ['Serving', `${whole(serving)} of ${whole(rows.length)}`],
  ];
}

/**
 * Write the line; the first part is bold with its moment beside it.
 * @param {View} view
 */
export function updateReadout(view) {
  const { state, cell } = view;
  const rows = view.scopeRows.filter((row) => state.engines[row].state !== 'removed');
  const line = byId('readout');
  if (state.index === null || !rows.length) return;
  const pointed = view.readout?.();
  const parts = pointed ?? (cell ? cellParts(state, cell) : fleetParts(state, rows, view.fixed));
  const text = JSON.stringify(parts);
  if (line.dataset.text === text) return;
  line.dataset.text = text;
  // A screen reader reads the cursor, not the fleet twice a second.
  const byKeyboard = pointed ? view.readout?.live : cell && !view.hover;
  line.setAttribute('aria-live', byKeyboard ? 'polite' : 'off');
  const [[name, moment], ...rest] = parts;
  line.replaceChildren(
    make('b', '', name),
    make('span', '', moment),
    ...rest.map(([label, value]) => make('span', '', `${label} `, make('i', '', value))),
  );
}
