/* <hw-unbound>: queued requests of one pool that have no engine yet, a bar per column. */

import { FleetState } from '../live/fleet_state.js';
import { palette } from './palette.js';
import { Picture, columnEdge } from './picture.js';

/** A queue this long fills the strip; the scale is logarithmic and fixed, requests. */
export const FULL_QUEUE = 100;

/**
 * Height 0..1 of a bar.
 * @param {number} queued
 */
export function barHeight(queued) {
  return queued > 0 ? Math.min(1, Math.log1p(queued) / Math.log1p(FULL_QUEUE)) : 0;
}

export class Unbound extends Picture {
  state = new FleetState();
  pool = 0;

  /**
   * @param {FleetState} state
   * @param {number} pool
   */
  show(state, pool) {
    this.state = state;
    this.pool = pool;
    this.invalidate();
  }

  paint() {
    const { context, width, height, state } = this;
    if (state.index === null) return;
    const { colour } = palette();
    context.fillStyle = colour('--sunken');
    context.fillRect(0, 0, width, height);
    context.fillStyle = colour('--term-queue');
    for (let column = 0; column < state.columns; column += 1) {
      const tall = barHeight(state.poolAt('unbound', this.pool, state.first + column)) * height;
      if (!tall) continue;
      const left = columnEdge(column, state.columns, width);
      const wide = columnEdge(column + 1, state.columns, width) - left;
      const bar = Math.max(1, Math.round(tall));
      context.fillRect(left, height - bar, wide > 3 ? wide - 1 : wide, bar);
    }
  }
}

customElements.define('hw-unbound', Unbound);
