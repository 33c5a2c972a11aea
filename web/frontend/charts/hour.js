/* <hw-hour>: a longer range in coarse columns, with a draggable frame around the range shown above. */

import { FleetState } from '../live/fleet_state.js';
import { heatPosition } from './log_scale.js';
import { palette } from './palette.js';
import { Picture, columnEdge } from './picture.js';

/**
 * [left, right] edge of the range shown, in strip columns from the left (fractions, not clipped).
 * @param {FleetState} state
 */
export function windowColumns(state) {
  const from = (state.hourIndex - state.hourColumns + 1) * state.hourColumnS;
  return [state.timeOf(state.first), state.timeOf(state.last + 1)].map((at) => (at - from) / state.hourColumnS);
}

export class Hour extends Picture {
  state = new FleetState();
  /** @type {number[]} */
  pools = [];
  sloS = NaN;
  /** @type {number | null} */
  end = null;

  /**
   * Show the peaks of the pools in `pools` (rows of the state), on the scale of `sloS`.
   * @param {FleetState} state
   * @param {number[]} pools
   * @param {number} sloS
   */
  show(state, pools, sloS) {
    this.state = state;
    this.pools = pools;
    this.sloS = sloS;
    this.invalidate();
  }

  /**
   * Move the frame while it is dragged: unix seconds of its right edge, null when released.
   * @param {number | null} end
   */
  drag(end) {
    this.end = end;
    this.invalidate();
  }

  paint() {
    const { context, width, height, state, ratio } = this;
    if (state.index === null) return;
    const { colour, heat } = palette();
    const inset = Math.round(2 * ratio);
    context.fillStyle = colour('--surface');
    context.fillRect(0, 0, width, height);
    context.fillStyle = colour('--sunken');
    context.fillRect(0, inset, width, height - 2 * inset);
    for (let column = 0; column < state.hourColumns; column += 1) {
      let peak = NaN;
      for (const pool of this.pools) {
        const value = state.hour[pool * state.hourColumns + column];
        if (!(peak >= value) && !Number.isNaN(value)) peak = value;
      }
      if (Number.isNaN(peak)) continue;
      const entry = Math.round(heatPosition(peak, this.sloS) * 255) * 3;
      const left = columnEdge(column, state.hourColumns, width);
      context.fillStyle = `rgb(${heat[entry]} ${heat[entry + 1]} ${heat[entry + 2]})`;
      context.fillRect(left, inset, columnEdge(column + 1, state.hourColumns, width) - left, height - 2 * inset);
    }
    this.#frame();
  }

  #frame() {
    const { context, width, height, state, ratio } = this;
    let [from, to] = windowColumns(state);
    if (this.end !== null) {
      const shift = (this.end - state.timeOf(state.last + 1)) / state.hourColumnS;
      [from, to] = [from + shift, to + shift];
    }
    /** @param {number} column */
    const edge = (column) => Math.min(width, Math.max(0, Math.round((column * width) / state.hourColumns)));
    const line = 1.5 * ratio;
    const right = Math.max(edge(to), 6 * ratio);
    const left = Math.min(edge(from), right - 6 * ratio);
    context.lineWidth = 4 * ratio;
    for (const [name, thick] of /** @type {[string, number][]} */ ([
      ['--bg', 3.5],
      ['--ink', 1.5],
    ])) {
      context.strokeStyle = palette().colour(name);
      context.lineWidth = thick * ratio;
      context.beginPath();
      context.roundRect(left + line / 2, line / 2, right - left - line, height - line, 2 * ratio);
      context.stroke();
    }
  }
}

customElements.define('hw-hour', Hour);
