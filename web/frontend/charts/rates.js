/* <hw-rates>: a few series over the columns of the shared time axis: stacked bars, and lines. */

import { palette } from './palette.js';
import { Picture, columnEdge } from './picture.js';

/**
 * Typed arrays of one number per column, NaN for unknown; bars come from the bottom up.
 * @typedef {object} RatesChart
 * @property {number} columns
 * @property {number} top the upper end of the scale
 * @property {Bar[]} bars
 * @property {Line[]} lines
 */

/** @typedef {{ values: Float32Array, colour: string, alpha: number }} Bar */

/**
 * @typedef {object} Line
 * @property {Float32Array} values
 * @property {string} colour
 * @property {number[]} dash
 * @property {number} width
 * @property {boolean} [quiet] not drawn where it stays at 0
 */

export class Rates extends Picture {
  /** @type {RatesChart | null} */
  chart = null;

  /** @param {RatesChart} chart */
  show(chart) {
    this.chart = chart;
    this.invalidate();
  }

  paint() {
    const { context, width, height, chart } = this;
    context.clearRect(0, 0, width, height);
    if (!chart) return;
    context.fillStyle = palette().colour('--line');
    for (const share of [0, 0.5, 1])
      context.fillRect(0, Math.min(height - 1, Math.round((height - 1) * share)), width, 1);
    this.#bars(chart);
    for (const line of chart.lines) this.#line(chart, line);
  }

  /**
   * One path per series: hundreds of rectangles cost one fill.
   * @param {RatesChart} chart
   */
  #bars({ columns, top, bars }) {
    const { context, width, height } = this;
    const base = new Float32Array(columns);
    for (const { values, colour, alpha } of bars) {
      context.globalAlpha = alpha;
      context.fillStyle = palette().colour(colour);
      context.beginPath();
      for (let column = 0; column < columns; column += 1) {
        const value = values[column];
        if (!(value > 0)) continue;
        const left = columnEdge(column, columns, width);
        const wide = columnEdge(column + 1, columns, width) - left;
        const under = Math.round((base[column] / top) * height);
        const over = Math.min(height, Math.max(under + 1, Math.round(((base[column] + value) / top) * height)));
        context.rect(left, height - over, wide > 3 ? wide - 1 : wide, over - under);
        base[column] += value;
      }
      context.fill();
    }
    context.globalAlpha = 1;
  }

  /**
   * @param {RatesChart} chart
   * @param {Line} line
   */
  #line({ columns, top }, { values, colour, dash, width, quiet }) {
    const { context, ratio } = this;
    const inset = ratio;
    context.strokeStyle = palette().colour(colour);
    context.lineWidth = width * ratio;
    context.setLineDash(dash.map((length) => length * ratio));
    context.beginPath();
    let open = false;
    for (let column = 0; column < columns; column += 1) {
      const value = values[column];
      if (Number.isNaN(value) || (quiet && value === 0 && !(values[column - 1] > 0) && !(values[column + 1] > 0))) {
        open = false;
        continue;
      }
      const x = (columnEdge(column, columns, this.width) + columnEdge(column + 1, columns, this.width)) / 2;
      const y = inset + (1 - Math.min(1, value / top)) * (this.height - 2 * inset);
      if (open) context.lineTo(x, y);
      else context.moveTo(x, y);
      open = true;
    }
    context.stroke();
    context.setLineDash([]);
  }
}

customElements.define('hw-rates', Rates);
