/* <hw-steps>: step lines and lines over one time range, with grid, target, band, marks and a crosshair. */

import { Picture } from '../charts/picture.js';
import { palette } from '../charts/palette.js';
import { stretches } from './series.js';
/** @import { ChartRow, ChartSeries } from './chart_rows.js' */

export class Steps extends Picture {
  /** @type {ChartRow | null} */
  row = null;
  /** @type {number[]} Moments, unix seconds. */
  marks = [];
  /** @type {number | null} */
  cursor = null;

  /**
   * Show `row` (of chartRows); `marks` are moments, unix s, and `cursor` one of them or null.
   * @param {ChartRow} row
   * @param {number[]} marks
   * @param {number | null} cursor
   */
  show(row, marks, cursor) {
    this.row = row;
    this.marks = marks;
    this.cursor = cursor;
    this.invalidate();
  }

  paint() {
    const { context, width, height, row } = this;
    context.clearRect(0, 0, width, height);
    if (!row) return;
    const { colour } = palette();
    if (row.band) {
      context.fillStyle = colour('--accent-tint');
      context.fillRect(0, this.#y(row.band[1]), width, this.#y(row.band[0]) - this.#y(row.band[1]));
    }
    context.fillStyle = colour('--line');
    for (const share of [0, 0.5, 1])
      context.fillRect(0, Math.min(height - 1, Math.round((height - 1) * share)), width, 1);
    for (const series of row.series) if (series.below) this.#below(row, series);
    for (const at of this.marks) this.#upright(at, colour('--ink-3'), 0.6, [this.ratio, 2 * this.ratio]);
    if (row.middle !== undefined) this.#level(row.middle, colour('--ink-3'), [this.ratio, 2 * this.ratio]);
    if (row.target !== undefined) this.#level(row.target, colour('--bad'), [4 * this.ratio, 3 * this.ratio]);
    for (const series of row.series) this.#line(row, series);
    if (this.cursor !== null) this.#upright(this.cursor, colour('--ink'), 0.5, []);
  }

  /** @param {number} at */
  #x(at) {
    const { from, to } = this.row ?? { from: 0, to: 1 };
    return ((at - from) / Math.max(1, to - from)) * this.width;
  }

  /** @param {number} value */
  #y(value) {
    const { top, bottom } = this.row ?? { top: 1, bottom: 0 };
    const inset = 1.5 * this.ratio;
    const share = Math.max(0, Math.min(1, (value - bottom) / (top - bottom || 1)));
    return inset + (1 - share) * (this.height - 2 * inset);
  }

  /**
   * @param {ChartRow} row
   * @param {ChartSeries} series
   */
  #line(row, series) {
    const { context, ratio } = this;
    context.strokeStyle = palette().colour(series.colour);
    context.lineWidth = series.width * ratio;
    context.setLineDash(series.dash.map((length) => length * ratio));
    context.lineJoin = 'round';
    context.beginPath();
    for (const points of stretches(series, row.from, row.to)) {
      if (series.quiet && points.every(([, y]) => y === 0)) continue;
      points.forEach(([x, y], index) =>
        index ? context.lineTo(this.#x(x), this.#y(y)) : context.moveTo(this.#x(x), this.#y(y)),
      );
    }
    context.stroke();
    context.setLineDash([]);
  }

  /**
   * Tint the area between a series and the target where the series is below it.
   * @param {ChartRow} row
   * @param {ChartSeries} series
   */
  #below(row, series) {
    const { context } = this;
    const { target } = row;
    if (target === undefined) return;
    const base = this.#y(target);
    context.fillStyle = palette().colour('--bad-tint');
    context.beginPath();
    for (const points of stretches(series, row.from, row.to)) {
      for (let index = 1; index < points.length; index += 1) {
        const [[x0, y0], [x1, y1]] = [points[index - 1], points[index]];
        if (y0 >= target && y1 >= target) continue;
        const cross = x0 + ((x1 - x0) * (target - y0)) / (y1 - y0 || 1);
        const [left, right] = [y0 < target ? x0 : cross, y1 < target ? x1 : cross];
        context.moveTo(this.#x(left), base);
        context.lineTo(this.#x(left), this.#y(Math.min(y0, target)));
        context.lineTo(this.#x(right), this.#y(Math.min(y1, target)));
        context.lineTo(this.#x(right), base);
      }
    }
    context.fill();
  }

  /**
   * @param {number} at
   * @param {string} colour
   * @param {number} opacity
   * @param {number[]} dash
   */
  #upright(at, colour, opacity, dash) {
    const x = Math.floor(this.#x(at)) + 0.5;
    this.#stroke(colour, opacity, dash, [
      [x, 0],
      [x, this.height],
    ]);
  }

  /**
   * @param {number} value
   * @param {string} colour
   * @param {number[]} dash
   */
  #level(value, colour, dash) {
    const y = Math.floor(this.#y(value)) + 0.5;
    this.#stroke(colour, 0.8, dash, [
      [0, y],
      [this.width, y],
    ]);
  }

  /**
   * @param {string} colour
   * @param {number} opacity
   * @param {number[]} dash
   * @param {number[][]} line from and to
   */
  #stroke(colour, opacity, dash, [from, to]) {
    const { context, ratio } = this;
    context.globalAlpha = opacity;
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1, Math.round(ratio));
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(from[0], from[1]);
    context.lineTo(to[0], to[1]);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }
}

customElements.define('hw-steps', Steps);
