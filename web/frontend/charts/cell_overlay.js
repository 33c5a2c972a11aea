/* Overlays on the cells of an engine that was not serving. */

import { UNKNOWN_BYTE } from '../live/fleet_state.js';
/** @import { FleetState } from '../live/fleet_state.js' */

/**
 * Return the overlay of a cell: 'lost', 'quarantined' or 'away' (hatch), 'leaving' (a line under it), '' (nothing).
 * @param {string} state
 * @param {number} tokens
 */
export function cellOverlay(state, tokens) {
  if (state === 'lost' || state === 'quarantined') return state;
  if (state === 'maintenance') return 'away';
  if (state === 'draining') return tokens > 0 ? 'leaving' : 'away';
  return '';
}

/**
 * Return the runs of equal overlay of a row: [[kind, from, to]], `to` excluded.
 * @param {FleetState} state
 * @param {number} row
 */
export function overlayRuns(state, row) {
  if (row >= state.engines.length) return [];
  /** @type {[kind: string, from: number, to: number][]} */
  const runs = [];
  const ring = state.engineByteRing.state;
  const plain = state.states.indexOf('serving');
  const { columns, first, last } = state;
  const [start, end] = [row * columns, (row + 1) * columns];
  let kind = '';
  let from = first;
  let slot = start + (first % columns);
  // Runs for every cell of every frame: plain and unknown cells cost one comparison.
  for (let index = first; index <= last; index += 1) {
    const byte = ring[slot];
    slot = slot + 1 === end ? start : slot + 1;
    const here =
      byte === plain || byte === UNKNOWN_BYTE
        ? ''
        : cellOverlay(state.states[byte], state.engineAt('tokens', row, index));
    if (here === kind) continue;
    if (kind) runs.push([kind, from, index]);
    kind = here;
    from = index;
  }
  if (kind) runs.push([kind, from, last + 1]);
  return runs;
}
