/* <sy-hour>: the last hour in coarse columns, with a frame round the minutes shown above. */

import { heatPosition } from '../scale/log_scale.js';
import { palette } from '../scale/palette.js';
import { Picture, columnEdge } from './picture.js';

class Hour extends Picture {
  /** Show the peaks of the pools in `pools` (rows of the state), on the scale of `sloS`. */
  show(state, pools, sloS) {
    this.state = state;
    this.pools = pools;
    this.sloS = sloS;
    this.invalidate();
  }

  paint() {
    const { context, width, height, state, ratio } = this;
    if (!state || state.index === null) return;
    const { colour, heat } = palette();
    const inset = Math.round(2 * ratio);
    context.fillStyle = colour('--surface');
    context.fillRect(0, 0, width, height);
    context.fillStyle = colour('--sunken');
    context.fillRect(0, inset, width, height - 2 * inset);
    for (let place = 0; place < state.hourColumns; place += 1) {
      const peaks = this.pools.map((pool) => state.hour[pool * state.hourColumns + place]).filter((peak) => !Number.isNaN(peak));
      if (!peaks.length) continue;
      const entry = Math.round(heatPosition(Math.max(...peaks), this.sloS) * 255) * 3;
      const left = columnEdge(place, state.hourColumns, width);
      context.fillStyle = `rgb(${heat[entry]} ${heat[entry + 1]} ${heat[entry + 2]})`;
      context.fillRect(left, inset, columnEdge(place + 1, state.hourColumns, width) - left, height - 2 * inset);
    }
    this.#frame((state.columns * state.columnS) / state.hourColumnS);
  }

  #frame(columns) {
    const { context, width, height, state, ratio } = this;
    const left = columnEdge(state.hourColumns - columns, state.hourColumns, width);
    const line = 1.5 * ratio;
    context.strokeStyle = palette().colour('--ink');
    context.lineWidth = line;
    context.beginPath();
    context.roundRect(left + line / 2, line / 2, width - left - line, height - line, 2 * ratio);
    context.stroke();
  }
}

customElements.define('sy-hour', Hour);
