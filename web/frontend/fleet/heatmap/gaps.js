/* Columns without any sample, between others: the program was down, or this view was lost. */

/** @import { FleetState } from '../../live/fleet_state.js' */

/**
 * Place of the oldest column in which any engine reported; the number of columns when there is none.
 * @param {FleetState} state
 */
export function firstHeard(state) {
  for (let place = 0; place < state.columns; place += 1) if (state.heardAt(state.first + place)) return place;
  return state.columns;
}

/**
 * Gaps as [[from, to]], places of columns, `to` excluded; what lies before the first received column is no gap.
 * @param {FleetState} state
 */
export function gapsOf(state) {
  /** @type {[from: number, to: number][]} */
  const gaps = [];
  let from = null;
  for (let place = firstHeard(state); place < state.columns; place += 1) {
    const heard = state.heardAt(state.first + place);
    if (!heard && from === null) from = place;
    if (heard && from !== null) {
      gaps.push([from, place]);
      from = null;
    }
  }
  // The column that is still filling may be empty for a moment.
  if (from !== null && state.columns - from > 1) gaps.push([from, state.columns]);
  return gaps;
}
