/* The queue at the gateway on the time axis of the heat: queued requests, dispatches, rejections and migrations. */

import { clock, rate, whole, NARROW } from '../../shell/format.js';
import { perSecond, queueFigures, queueParts, queueSeries, rejectionText, scaleTop, stacked } from './queue_figures.js';
import { palette } from '../../charts/palette.js';
import { byId, make, required, setText } from '../../shell/element.js';
/** @import { Rates } from '../../charts/rates.js' */
/** @import { Readout, View } from '../view.js' */
/** @import { QueueFigures, QueueSeries } from './queue_figures.js' */

const QUEUE = '--term-queue';
/**
 * @typedef {object} BarPlan
 * @property {QueueSeries} name
 * @property {string} words
 * @property {string} colour
 * @property {number} alpha
 */

/**
 * @typedef {object} LinePlan
 * @property {QueueSeries} name
 * @property {string} words
 * @property {string} colour
 * @property {number[]} dash
 * @property {number} width
 * @property {boolean} [quiet] not drawn where it stays at 0
 */

/**
 * @typedef {object} QueueRow
 * @property {BarPlan[]} bars
 * @property {LinePlan[]} lines
 * @property {number} least minimum upper end of the axis
 * @property {string} unit
 * @property {(value: number) => string} figure
 * @property {string} [title] what is counted, if it is neither queued requests nor requests per second
 */

/**
 * Rows: label, style, and number format of each series; bars from the bottom up.
 * @type {Record<string, QueueRow>}
 */
const ROWS = {
  waiting: {
    bars: [
      { name: 'bound', words: 'bound to an engine', colour: QUEUE, alpha: 0.7 },
      { name: 'unbound', words: 'unbound', colour: QUEUE, alpha: 1 },
    ],
    lines: [],
    least: 5,
    unit: 'requests',
    figure: whole,
  },
  dispatched: {
    bars: [],
    lines: [
      { name: 'atOnce', words: 'dispatched at once', colour: '--series-live', dash: [], width: 1.5 },
      { name: 'waited', words: 'dispatched after waiting', colour: QUEUE, dash: [6, 2], width: 1.5 },
    ],
    least: 1,
    unit: '/s',
    figure: perSecond,
  },
  failed: {
    bars: [{ name: 'failed', words: 'failed', colour: '--bad-fill', alpha: 1 }],
    lines: [],
    least: 5,
    unit: 'requests',
    figure: whole,
    title: 'Failed requests',
  },
  rejected: {
    bars: [{ name: 'rejected', words: 'rejected', colour: '--bad', alpha: 1 }],
    lines: [{ name: 'migrated', words: 'migrated', colour: '--series-s4', dash: [2, 2], width: 1.5, quiet: true }],
    least: 1,
    unit: '/s',
    figure: perSecond,
  },
};

/**
 * Return the upper end of the axis that fits all series of a row.
 * @param {Pick<QueueRow, 'bars' | 'lines' | 'least'>} row
 * @param {Record<QueueSeries, Float32Array>} series
 */
export function rowTop({ bars, lines, least }, series) {
  const stacks = bars.map(({ name }) => series[name]);
  const together = stacks.length ? [stacks.reduce(stacked)] : [];
  return scaleTop(least, ...together, ...lines.map(({ name }) => series[name]));
}

/**
 * Return one sentence about a row: current and highest values.
 * @param {QueueRow} row
 * @param {QueueFigures} now
 * @param {Record<QueueSeries, Float32Array>} series
 */
export function rowSummary({ bars, lines, figure, unit, title }, now, series) {
  const parts = [...bars, ...lines].map(({ name, words }) => {
    const most = series[name].reduce((highest, value) => (value > highest ? value : highest), -1);
    return `${words} ${figure(now[name])}${most > 0 ? `, at most ${figure(most)}` : ''}`;
  });
  return `${title ?? (unit === '/s' ? 'Requests per second' : 'Queued requests')}: ${parts.join('; ')}.`;
}

export class QueuePanel {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.folded = false;
    this.key = '';
    /** @type {Readout | null} What this panel shows in the readout. */
    this.readout = null;
    this.rows = Object.entries(ROWS).map(([name, plan]) => this.#row(name, plan));
    byId('queue-legend').replaceChildren(
      ...Object.values(ROWS).flatMap(({ bars, lines }) =>
        [...bars, ...lines].map((series) => make('span', '', key(series), series.words)),
      ),
    );
    byId('queue-fold').addEventListener('click', () => view.setQueue(this.folded ? 'open' : 'folded'));
  }

  /**
   * Fold or show the rows.
   * @param {boolean} folded
   */
  fold(folded) {
    this.folded = folded;
    byId('queue-fold').setAttribute('aria-expanded', String(!folded));
    byId('queue-rows').hidden = folded;
    byId('queue-legend').hidden = folded;
    byId('queue-now').hidden = !folded;
  }

  update() {
    const { state, pools } = this.view;
    if (state.index === null || !pools.length) return;
    const now = queueFigures(state, pools);
    if (this.folded) {
      setText(byId('queue-now'), foldedWords(now));
      return;
    }
    for (const { plan, values } of this.rows) {
      for (const { series, cell } of values) setText(cell, plan.figure(now[series.name]));
    }
    const why = rejectionText(now.codes);
    byId('queue-rejected').title = why ? `Rejected: ${why}` : '';
    // A past range has new texts twice a second, and new columns rarely.
    const drawn = [state.generation, state.seq, state.index, pools.join(), palette().colour('--bg')].join('|');
    if (drawn === this.key) return;
    this.key = drawn;
    this.#draw(queueSeries(state, pools), now);
  }

  /**
   * @param {Record<QueueSeries, Float32Array>} series
   * @param {QueueFigures} now
   */
  #draw(series, now) {
    const { state } = this.view;
    for (const { plan, picture, range } of this.rows) {
      const top = rowTop(plan, series);
      picture.show({
        columns: state.columns,
        top,
        bars: plan.bars.map((bar) => ({ ...bar, values: series[bar.name] })),
        lines: plan.lines.map((line) => ({ ...line, values: series[line.name] })),
      });
      const within = plan.title && state.windowS > 0 ? ` in ${whole(state.windowS)}${NARROW}s` : '';
      setText(range, `0 to ${whole(top)}${plan.unit === '/s' ? `${NARROW}/s` : within}`);
      const summary = rowSummary(plan, now, series);
      if (picture.getAttribute('aria-label') !== summary) picture.setAttribute('aria-label', summary);
    }
  }

  /**
   * @param {string} name
   * @param {QueueRow} plan
   */
  #row(name, plan) {
    const root = byId(`queue-${name}`);
    const picture = /** @type {Rates} */ (required(root, 'hw-rates'));
    const values = [...plan.bars, ...plan.lines].map((series) => ({ series, cell: make('b') }));
    required(root, '.line-values').replaceChildren(
      ...values.map(({ cell, series }) => {
        const line = make('span', 'line-value', key(series), make('span', 'hidden', series.words), cell);
        line.title = series.words;
        return line;
      }),
    );
    this.#follow(picture);
    return { plan, picture, values, range: required(root, '.queue-range') };
  }

  /**
   * Show the queue at the pointer, or on keyboard focus, in the readout.
   * @param {Rates} picture
   */
  #follow(picture) {
    const { view } = this;
    /**
     * @param {number | null} moment
     * @param {boolean} live
     */
    const show = (moment, live) => {
      const readout = Object.assign(() => this.#momentParts(), { live });
      view.moment = moment;
      view.readout = readout;
      this.readout = readout;
      view.changed('cursor');
    };
    const end = () => {
      if (view.readout === this.readout) view.readout = null;
      view.moment = null;
      view.changed('cursor');
    };
    picture.addEventListener('pointermove', (event) => {
      const column = Math.floor((event.offsetX / picture.clientWidth) * view.state.columns);
      if (view.state.index !== null)
        show(view.state.first + Math.min(view.state.columns - 1, Math.max(0, column)), false);
    });
    picture.addEventListener('pointerleave', end);
    picture.addEventListener('focus', () => show(null, true));
    picture.addEventListener('blur', end);
  }

  #momentParts() {
    const { state, pools, focus, moment, cell } = this.view;
    const index = Math.min(state.last, Math.max(state.first, moment ?? cell?.index ?? state.last));
    return [['Queue', clock(state.timeOf(index))], ...queueParts(state, pools, focus, index)];
  }
}

/**
 * Return the queue in one line, for folded rows.
 * @param {QueueFigures} now
 */
export function foldedWords({ bound, unbound, rejected, codes, failed }) {
  const broken = failed > 0 ? `; ${whole(failed)} failed` : '';
  const waiting = `${whole(bound)} bound and ${whole(unbound)} unbound requests queued${broken}`;
  return codes.length
    ? `${waiting}; rejected ${rate(rejected)}${NARROW}/s: ${rejectionText(codes)}`
    : `${waiting}; none rejected`;
}

/**
 * Return the legend mark of a series: a block for bars, a line for lines.
 * @param {BarPlan | LinePlan} series
 */
function key(series) {
  const { name } = series;
  return make('i', 'dash' in series ? `queue-key queue-line-${name}` : `queue-key queue-bar-${name}`);
}
