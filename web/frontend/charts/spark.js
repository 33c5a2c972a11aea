/* <hw-spark>: a small line without axes; the attribute `dot` marks its newest point. */

import { palette } from './palette.js';
import { Picture } from './picture.js';

/**
 * [low, high] of the known values, spread when flat so that a constant series runs through the middle.
 * Null without any.
 * @param {number[]} series
 */
export function sparkRange(series) {
  const known = series.filter((value) => !Number.isNaN(value));
  if (!known.length) return null;
  const low = Math.min(...known);
  const high = Math.max(...known);
  const least = Math.max(Math.abs(high) * 0.02, 1e-9);
  if (high - low >= least) return [low, high];
  return [(low + high - least) / 2, (low + high + least) / 2];
}

export class Spark extends Picture {
  /** @type {number[]} */
  series = [];

  /** @param {number[]} series */
  show(series) {
    this.series = series;
    this.invalidate();
  }

  paint() {
    const { context, width, height, series, ratio } = this;
    context.clearRect(0, 0, width, height);
    const range = sparkRange(series);
    if (!range) return;
    const inset = 2.5 * ratio;
    /** @param {number} index */
    const x = (index) => (index / (series.length - 1)) * (width - inset * (this.hasAttribute('dot') ? 1 : 0));
    /** @param {number} value */
    const y = (value) => inset + (1 - (value - range[0]) / (range[1] - range[0])) * (height - 2 * inset);
    context.strokeStyle = palette().colour(this.hasAttribute('dot') ? '--ink-2' : '--ink-3');
    context.lineWidth = 1.25 * ratio;
    context.lineJoin = context.lineCap = 'round';
    context.beginPath();
    let open = false;
    series.forEach((value, index) => {
      if (Number.isNaN(value)) open = false;
      else if (open) context.lineTo(x(index), y(value));
      else {
        context.moveTo(x(index), y(value));
        open = true;
      }
    });
    context.stroke();
    if (this.hasAttribute('dot') && !Number.isNaN(series[series.length - 1]))
      this.#dot(x(series.length - 1), y(series[series.length - 1]));
  }

  /**
   * @param {number} x
   * @param {number} y
   */
  #dot(x, y) {
    this.context.fillStyle = palette().colour('--ink-2');
    this.context.beginPath();
    this.context.arc(x, y, 2 * this.ratio, 0, 2 * Math.PI);
    this.context.fill();
  }
}

customElements.define('hw-spark', Spark);
