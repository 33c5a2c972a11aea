/* <sy-lines>: one uPlot chart on the page's time axis; the focused pool in blue, the others grey and dashed. */

import uPlot from 'uplot';
import { palette } from '../scale/palette.js';
import { redraw } from './redraw_loop.js';

const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) target.resized(contentRect.width, contentRect.height);
});

/** Place, in fractions of a column, where the series crosses the target beside `place`; `by` −1 looks left, 1 right. */
export function crossing(values, target, place, by) {
  const [here, beyond] = [values[place], values[place + by]];
  return beyond === undefined || Number.isNaN(beyond) ? place : place + (by * (target - here)) / (beyond - here);
}

class Lines extends HTMLElement {
  connectedCallback() {
    sizes.observe(this);
  }

  disconnectedCallback() {
    sizes.unobserve(this);
  }

  /**
   * Show `chart`: {x, series: [[…], …], focus, range: [low, high], grid: […], target: number | null, above, span: [from, to]};
   * x in unix seconds, NaN in a series is a gap; the area of the focused series below the target (`above`: over it)
   * is tinted.
   */
  show(chart) {
    this.chart = chart;
    redraw(this);
  }

  resized(width, height) {
    this.size = { width: Math.round(width), height: Math.round(height) };
    redraw(this);
  }

  paint() {
    const { chart, size } = this;
    if (!chart || !size?.width || !size.height) return;
    const key = `${chart.series.length} ${chart.focus} ${palette().colour('--bg')}`;
    if (key !== this.key) this.#build(key);
    else if (this.plot.width !== size.width || this.plot.height !== size.height) this.plot.setSize(size);
    const gaps = chart.series.map((values) => values.map((value) => (Number.isNaN(value) ? null : value)));
    this.plot.setData([chart.x, ...gaps]);
  }

  #build(key) {
    this.plot?.destroy();
    this.key = key;
    const { colour } = palette();
    const line = (_, row) => (row === this.chart.focus
      ? { stroke: colour('--series-live'), width: 1.5, points: { show: false } }
      : { stroke: colour('--series-actual'), width: 1, dash: [4, 3], alpha: 0.9, points: { show: false } });
    this.plot = new uPlot({
      ...this.size,
      padding: [0, 0, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false },
      axes: [{ show: false }, { show: false }],
      scales: { x: { time: false, range: () => this.chart.span }, y: { range: () => this.chart.range } },
      series: [{}, ...this.chart.series.map(line)],
      hooks: { drawClear: [(plot) => this.#ground(plot)], draw: [(plot) => this.#target(plot)] },
    }, [this.chart.x, ...this.chart.series], this);
  }

  #ground(plot) {
    const { context, y } = pen(plot);
    context.save();
    context.fillStyle = palette().colour('--line');
    for (const value of this.chart.grid) context.fillRect(0, y(value), plot.width * devicePixelRatio, 1);
    if (this.chart.target !== null) this.#beyond(plot);
    context.restore();
  }

  /** Tint the area between the focused series and the target wherever the series is beyond it. */
  #beyond(plot) {
    const { context, y } = pen(plot);
    const { x, series, focus, target, above } = this.chart;
    const values = series[focus];
    const base = y(target);
    const step = x.length > 1 ? x[1] - x[0] : 0;
    const xOf = (place) => plot.valToPos(x[0] + place * step, 'x', true);
    const beyond = (place) => (above ? values[place] > target : values[place] < target);
    context.fillStyle = palette().colour('--bad-tint');
    for (let from = 0; from < x.length; from += 1) {
      if (!beyond(from)) continue;
      let to = from;
      while (beyond(to + 1)) to += 1;
      context.beginPath();
      // One path per run: neighbouring shapes would show their seams.
      context.moveTo(xOf(crossing(values, target, from, -1)), base);
      for (let place = from; place <= to; place += 1) context.lineTo(xOf(place), y(values[place]));
      context.lineTo(xOf(crossing(values, target, to, 1)), base);
      context.fill();
      from = to;
    }
  }

  #target(plot) {
    if (this.chart.target === null) return;
    const { context, y } = pen(plot);
    context.save();
    context.strokeStyle = palette().colour('--bad');
    context.globalAlpha = 0.8;
    context.lineWidth = Math.round(devicePixelRatio);
    context.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    context.beginPath();
    context.moveTo(0, y(this.chart.target) + 0.5);
    context.lineTo(plot.width * devicePixelRatio, y(this.chart.target) + 0.5);
    context.stroke();
    context.restore();
  }
}

const pen = (plot) => ({
  context: plot.ctx,
  y: (value) => Math.min(Math.round(plot.valToPos(value, 'y', true)), Math.round(plot.height * devicePixelRatio) - 1),
});

customElements.define('sy-lines', Lines);
