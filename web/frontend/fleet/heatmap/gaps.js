/* Columns without any sample, between others: the program was down, or this view was lost. */

/** @import { FleetState } from '../../live/fleet_state.js' */

/**
 * Place of the oldest column in which any engine reported; the number of columns when there is none.
 * @param {FleetState} state
 */
export function firstSampled(state) {
  for (let column = 0; column < state.columns; column += 1) if (state.hasSample(state.first + column)) return column;
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
  for (let column = firstSampled(state); column < state.columns; column += 1) {
    const sampled = state.hasSample(state.first + column);
    if (!sampled && from === null) from = column;
    if (sampled && from !== null) {
      gaps.push([from, column]);
      from = null;
    }
  }
  // The column that is still filling may be empty for a moment.
  if (from !== null && state.columns - from > 1) gaps.push([from, state.columns]);
  return gaps;
}
