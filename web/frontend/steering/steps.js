/* <sy-steps>: step lines and lines over one stretch of time, with grid, target, band, marks and a crosshair. */

import { Picture } from '../pictures/picture.js';
import { palette } from '../scale/palette.js';
import { stretches } from './series.js';

class Steps extends Picture {
  /** Show `row` (of chartRows); `marks` are moments, unix s, and `cursor` one of them or null. */
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
    for (const share of [0, 0.5, 1]) context.fillRect(0, Math.min(height - 1, Math.round((height - 1) * share)), width, 1);
    for (const series of row.series) if (series.below) this.#below(series);
    for (const at of this.marks) this.#upright(at, colour('--ink-3'), 0.6, [this.ratio, 2 * this.ratio]);
    if (row.middle !== undefined) this.#level(row.middle, colour('--ink-3'), [this.ratio, 2 * this.ratio]);
    if (row.target !== undefined) this.#level(row.target, colour('--bad'), [4 * this.ratio, 3 * this.ratio]);
    for (const series of row.series) this.#line(series);
    if (this.cursor !== null) this.#upright(this.cursor, colour('--ink'), 0.5, []);
  }

  #x(at) {
    const { from, to } = this.row;
    return ((at - from) / Math.max(1, to - from)) * this.width;
  }

  #y(value) {
    const { top, bottom } = this.row;
    const inset = 1.5 * this.ratio;
    const share = Math.max(0, Math.min(1, (value - bottom) / (top - bottom || 1)));
    return inset + (1 - share) * (this.height - 2 * inset);
  }

  #line(series) {
    const { context, ratio, row } = this;
    context.strokeStyle = palette().colour(series.colour);
    context.lineWidth = series.width * ratio;
    context.setLineDash(series.dash.map((length) => length * ratio));
    context.lineJoin = 'round';
    context.beginPath();
    for (const points of stretches(series, row.from, row.to)) {
      if (series.quiet && points.every(([, y]) => y === 0)) continue;
      points.forEach(([x, y], place) => (place ? context.lineTo(this.#x(x), this.#y(y)) : context.moveTo(this.#x(x), this.#y(y))));
    }
    context.stroke();
    context.setLineDash([]);
  }

  /** Tint what lies between a series and the target wherever it is below. */
  #below(series) {
    const { context, row } = this;
    const base = this.#y(row.target);
    context.fillStyle = palette().colour('--bad-tint');
    context.beginPath();
    for (const points of stretches(series, row.from, row.to)) {
      for (let place = 1; place < points.length; place += 1) {
        const [[x0, y0], [x1, y1]] = [points[place - 1], points[place]];
        if (y0 >= row.target && y1 >= row.target) continue;
        const cross = x0 + ((x1 - x0) * (row.target - y0)) / (y1 - y0 || 1);
        const [left, right] = [y0 < row.target ? x0 : cross, y1 < row.target ? x1 : cross];
        context.moveTo(this.#x(left), base);
        context.lineTo(this.#x(left), this.#y(Math.min(y0, row.target)));
        context.lineTo(this.#x(right), this.#y(Math.min(y1, row.target)));
        context.lineTo(this.#x(right), base);
      }
    }
    context.fill();
  }

  #upright(at, colour, opacity, dash) {
    const x = Math.floor(this.#x(at)) + 0.5;
    this.#stroke(colour, opacity, dash, [[x, 0], [x, this.height]]);
  }

  #level(value, colour, dash) {
    const y = Math.floor(this.#y(value)) + 0.5;
    this.#stroke(colour, 0.8, dash, [[0, y], [this.width, y]]);
  }

  #stroke(colour, opacity, dash, [from, to]) {
    const { context, ratio } = this;
    context.globalAlpha = opacity;
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1, Math.round(ratio));
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
    context.setLineDash([]);
    context.globalAlpha = 1;
  }
}

customElements.define('sy-steps', Steps);
