/* One pixel per cell, off screen: a new column is a shift by one pixel and one column of lookups. */

import { penOf } from './picture.js';
import { KNEE_S, SLO_SPAN } from './log_scale.js';
/** @import { FleetState } from '../live/fleet_state.js' */

/** The cells of some rows as an image of columns × rows pixels; unknown cells are transparent. */
export class ColumnStore {
  constructor() {
    this.canvas = document.createElement('canvas');
    this.key = '';
    /** @type {number | null} */
    this.index = null;
    this.context = penOf(this.canvas);
  }

  /**
   * Bring the image up to the newest column of `state`; returns the canvas.
   * @param {FleetState} state
   * @param {number[]} rows
   * @param {number} sloS
   * @param {Uint8Array} heat
   */
  sync(state, rows, sloS, heat) {
    const key = [state.generation, state.columns, sloS, heat[0], heat[heat.length - 1], rows.join(',')].join('|');
    const from = this.index ?? -Infinity;
    const behind = state.last - from;
    if (key !== this.key || behind < 0 || behind >= state.columns) {
      this.canvas.width = state.columns;
      this.canvas.height = rows.length;
      this.#paint(state, rows, sloS, heat, state.first, state.last);
    } else {
      if (behind > 0) this.#shift(behind);
      this.#paint(state, rows, sloS, heat, from, state.last);
    }
    this.key = key;
    this.index = state.index;
    return this.canvas;
  }

  /** @param {number} by */
  #shift(by) {
    this.context.globalCompositeOperation = 'copy';
    this.context.drawImage(this.canvas, -by, 0);
    this.context.globalCompositeOperation = 'source-over';
  }

  /**
   * Fill columns `from`..`to`; the column that was newest may have changed since.
   * @param {FleetState} state
   * @param {number[]} rows
   * @param {number} sloS
   * @param {Uint8Array} heat
   * @param {number} from
   * @param {number} to
   */
  #paint(state, rows, sloS, heat, from, to) {
    const width = to - from + 1;
    const image = this.context.createImageData(width, rows.length);
    const pixels = new Uint32Array(image.data.buffer);
    const table = packed(heat);
    const scale = 255 / Math.log1p((SLO_SPAN * sloS) / KNEE_S);
    for (let y = 0; y < rows.length; y += 1) {
      for (let x = 0; x < width; x += 1) {
        const waitS = state.engineAt('seconds', rows[y], from + x);
        if (Number.isNaN(waitS)) continue;
        const entry = Math.min(255, Math.round(Math.log1p(Math.max(0, waitS) / KNEE_S) * scale));
        pixels[y * width + x] = table[entry];
      }
    }
    this.context.putImageData(image, from - state.first, 0);
  }
}

/** @type {Uint8Array | null} */
let lastHeat = null;
let lastPacked = new Uint32Array(0);

/**
 * The colour table as opaque pixels in the byte order of the machine.
 * @param {Uint8Array} heat
 */
function packed(heat) {
  if (heat === lastHeat) return lastPacked;
  const bytes = new Uint8Array((heat.length / 3) * 4);
  for (let entry = 0; entry * 3 < heat.length; entry += 1)
    bytes.set([heat[entry * 3], heat[entry * 3 + 1], heat[entry * 3 + 2], 255], entry * 4);
  lastHeat = heat;
  lastPacked = new Uint32Array(bytes.buffer);
  return lastPacked;
}
