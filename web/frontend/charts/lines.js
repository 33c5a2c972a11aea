/* <hw-lines>: one uPlot chart on the page's time axis; the focused pool in blue, the others grey and dashed. */

import uPlot from 'uplot';
import { palette } from './palette.js';
import { redraw } from './redraw_loop.js';

const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (target instanceof Lines) target.resized(contentRect.width, contentRect.height);
  }
});

/**
 * Return the fractional column at which the series crosses the target next to `index`; `by` −1 searches left, 1 right.
 * @param {number[]} values
 * @param {number} target
 * @param {number} index
 * @param {number} by
 */
export function crossing(values, target, index, by) {
  const [here, beyond] = [values[index], values[index + by]];
  return beyond === undefined || Number.isNaN(beyond) ? index : index + (by * (target - here)) / (beyond - here);
}

/**
 * x in unix seconds; NaN in a series is a gap.
 * @typedef {object} LinesChart
 * @property {number[]} x
 * @property {number[][]} series
 * @property {number} focus index of the emphasized series
 * @property {[low: number, high: number]} range
 * @property {number[]} grid
 * @property {number | null} target the area of the focused series beyond it is tinted
 * @property {boolean} above true if "beyond" means over the target
 * @property {[from: number, to: number]} span
 */

export class Lines extends HTMLElement {
  /** @type {LinesChart} */
  chart = { x: [], series: [], focus: 0, range: [0, 1], grid: [], target: null, above: false, span: [0, 1] };
  size = { width: 0, height: 0 };
  key = '';
  /** @type {uPlot | null} */
  plot = null;

  connectedCallback() {
    sizes.observe(this);
  }

  disconnectedCallback() {
    sizes.unobserve(this);
  }

  /** @param {LinesChart} chart */
  show(chart) {
    this.chart = chart;
    redraw(this);
  }

  /**
   * @param {number} width
   * @param {number} height
   */
  resized(width, height) {
    this.size = { width: Math.round(width), height: Math.round(height) };
    redraw(this);
  }

  paint() {
    const { chart, size } = this;
    if (!chart.series.length || !size.width || !size.height) return;
    const key = `${chart.series.length} ${chart.focus} ${palette().colour('--bg')}`;
    const plot = this.plot && key === this.key ? this.plot : this.#build(key);
    if (plot.width !== size.width || plot.height !== size.height) plot.setSize(size);
    const gaps = chart.series.map((values) => values.map((value) => (Number.isNaN(value) ? null : value)));
    plot.setData([chart.x, ...gaps]);
  }

  /** @param {string} key */
  #build(key) {
    this.plot?.destroy();
    this.key = key;
    const { colour } = palette();
    /** @param {number} row */
    /**
     * @param {number[]} _
     * @param {number} row
     */
    const line = (_, row) =>
      row === this.chart.focus
        ? { stroke: colour('--series-live'), width: 1.5, points: { show: false } }
        : { stroke: colour('--series-actual'), width: 1, dash: [4, 3], alpha: 0.9, points: { show: false } };
    const plot = new uPlot(
      {
        ...this.size,
        padding: [0, 0, 0, 0],
        legend: { show: false },
        cursor: { show: false },
        select: { show: false, left: 0, top: 0, width: 0, height: 0 },
        axes: [{ show: false }, { show: false }],
        scales: { x: { time: false, range: () => this.chart.span }, y: { range: () => this.chart.range } },
        series: [{}, ...this.chart.series.map(line)],
        hooks: { drawClear: [(drawn) => this.#ground(drawn)], draw: [(drawn) => this.#target(drawn)] },
      },
      [this.chart.x, ...this.chart.series],
      this,
    );
    this.plot = plot;
    return plot;
  }

  /** @param {uPlot} plot */
  #ground(plot) {
    const { context, y } = pen(plot);
    context.save();
    context.fillStyle = palette().colour('--line');
    for (const value of this.chart.grid) context.fillRect(0, y(value), plot.width * devicePixelRatio, 1);
    this.#beyond(plot);
    context.restore();
  }

  /**
   * Tint the area between the focused series and the target wherever the series is beyond it.
   * @param {uPlot} plot
   */
  #beyond(plot) {
    const { context, y } = pen(plot);
    const { x, series, focus, target, above } = this.chart;
    if (target === null) return;
    const values = series[focus];
    const base = y(target);
    const step = x.length > 1 ? x[1] - x[0] : 0;
    /** @param {number} index */
    const xOf = (index) => plot.valToPos(x[0] + index * step, 'x', true);
    /** @param {number} index */
    const beyond = (index) => (above ? values[index] > target : values[index] < target);
    context.fillStyle = palette().colour('--bad-tint');
    for (let from = 0; from < x.length; from += 1) {
      if (!beyond(from)) continue;
      let to = from;
      while (beyond(to + 1)) to += 1;
      context.beginPath();
      // One path per run: neighbouring shapes would show their seams.
      context.moveTo(xOf(crossing(values, target, from, -1)), base);
      for (let index = from; index <= to; index += 1) context.lineTo(xOf(index), y(values[index]));
      context.lineTo(xOf(crossing(values, target, to, 1)), base);
      context.fill();
      from = to;
    }
  }

  /** @param {uPlot} plot */
  #target(plot) {
    const { target } = this.chart;
    if (target === null) return;
    const { context, y } = pen(plot);
    context.save();
    context.strokeStyle = palette().colour('--bad');
    context.globalAlpha = 0.8;
    context.lineWidth = Math.round(devicePixelRatio);
    context.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    context.beginPath();
    context.moveTo(0, y(target) + 0.5);
    context.lineTo(plot.width * devicePixelRatio, y(target) + 0.5);
    context.stroke();
    context.restore();
  }
}

/** @param {uPlot} plot */
const pen = (plot) => ({
  context: plot.ctx,
  /** @param {number} value */
  y: (value) => Math.min(Math.round(plot.valToPos(value, 'y', true)), Math.round(plot.height * devicePixelRatio) - 1),
});

customElements.define('hw-lines', Lines);
