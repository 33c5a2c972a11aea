/* Columns without a sample between sampled ones: Headway was down, or this view was disconnected. */

/** @import { FleetState } from '../../live/fleet_state.js' */

/**
 * Return the oldest column with a sample; the number of columns if there is none.
 * @param {FleetState} state
 */
export function firstSampled(state) {
  for (let column = 0; column < state.columns; column += 1) if (state.hasSample(state.first + column)) return column;
  return state.columns;
}

/**
 * Return gaps as [[from, to]] in columns, `to` excluded; columns before the first sample are no gap.
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
  // The newest column may still be empty.
  if (from !== null && state.columns - from > 1) gaps.push([from, state.columns]);
  return gaps;
}
