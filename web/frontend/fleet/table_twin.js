/* The same data as the pictures, as tables: the engines at the cursor's moment, the lines, the strip, the moments. */

import { clock, count, dayClock, duration, percentText, rate, ratio, short, whole, zoneName } from '../shell/format.js';
import { perSecond, queueFigures, rejectionText } from './queue/queue_figures.js';
import { byId, findAll, make, setText, stateShape } from '../shell/element.js';
import { stepWords } from '../shell/span_words.js';
/** @import { FleetState } from '../live/fleet_state.js' */
/** @import { View } from './view.js' */

/** @type {[string, string]} */
/** Rows of one page of a table. */
const PAGE = 200;
/** Maximum rows of the tables over time; with more columns, every second, third … is shown. */
const MOMENTS = 180;

/**
 * A column of a table: title, class of its cells, text of a row.
 * @template {unknown[]} Row
 * @typedef {[title: string, kind: string, text: (...row: Row) => string]} Column
 */

/**
 * Return the value of an engine in a column, or now.
 * @param {FleetState} state
 * @param {string} name
 * @param {number} row
 * @param {number | null} index
 */
const valueOf = (state, name, row, index) =>
  index === null ? state.nowOf(name, row) : state.engineAt(name, row, index);

/** Columns of the engines; `index` null means now. @type {Column<[FleetState, number, number | null]>[]} */
const ENGINES = [
  ['Engine', '', (state, row) => state.engines[row].name],
  [
    'State',
    '',
    (state, row, index) => (index === null ? state.engines[row].state : state.stateAt(row, index) || 'unknown'),
  ],
  ['Pool', '', (state, row) => state.pools[state.poolRow(state.engines[row].pool)].name],
  ['In flight, tok', 'number', (state, row, index) => short(valueOf(state, 'tokens', row, index))],
  ['To go', 'number', (state, row, index) => duration(valueOf(state, 'seconds', row, index))],
  ['Mean to go', 'number', (state, row, index) => duration(state.engineAt('mean_s', row, index ?? state.index))],
  ['Running', 'number', (state, row, index) => whole(valueOf(state, 'running', row, index))],
  ['Bound', 'number', (state, row, index) => whole(valueOf(state, 'bound', row, index))],
  [
    'Oldest queued',
    'number',
    (state, row, index) =>
      index === null && state.nowOf('bound', row) > 0 ? duration(state.nowOf('oldest_s', row)) : '—',
  ],
  [
    'KV in use',
    'number',
    (state, row, index) => percentText(index === null ? state.nowOf('kv', row) : state.shareAt('kv', row, index)),
  ],
  ['Hit, reported', 'number', (state, row, index) => percentText(state.shareAt('hit', row, index ?? state.index))],
  [
    'Hit, predicted',
    'number',
    (state, row, index) => percentText(state.shareAt('predicted', row, index ?? state.index)),
  ],
  ['Index', '', (state, row) => state.engines[row].trust || '—'],
  ['Report age', 'number', (state, row, index) => (index === null ? duration(state.nowOf('report_age_s', row)) : '—')],
];

/**
 * A column of a pool's figure over time.
 * @param {string} title
 * @param {string} name
 * @param {(value: number) => string} words
 * @returns {Column<[FleetState, number, number]>}
 */
const figure = (title, name, words) => [
  title,
  'number',
  (state, pool, index) => words(state.poolAt(name, pool, index)),
];

const LINES = [
  figure('Load CV', 'cv', ratio),
  figure('On time', 'on_time', percentText),
  figure('Hit, reported', 'hit', percentText),
  figure('TTFT p50', 'ttft_p50_s', duration),
  figure('TTFT p90', 'ttft_p90_s', duration),
  figure('TTFT p99', 'ttft_p99_s', duration),
  figure('Requests, /s', 'requests_per_s', rate),
  figure('Unbound', 'unbound', whole),
  figure('Late', 'late', whole),
  figure('Failed', 'failed', whole),
  figure('Rejected', 'rejected', whole),
];
/** @type {Column<[FleetState, number, number]>[]} */
const QUEUE = [
  figure('Bound', 'bound', whole),
  figure('Unbound', 'unbound', whole),
  figure('Oldest unbound', 'oldest_wait_s', duration),
  figure('Dispatched at once, /s', 'dispatched_at_once_per_s', perSecond),
  figure('After waiting, /s', 'dispatched_waited_per_s', perSecond),
  figure('Wait, mean', 'queue_wait_mean_s', duration),
  figure('Wait, p90', 'queue_wait_p90_s', duration),
  figure('Overtaken, /s', 'overtaken_per_s', perSecond),
  figure('Migrated, /s', 'migrations_per_s', perSecond),
  figure('Failed', 'failed', whole),
  figure('Rejected, /s', 'rejections_per_s', perSecond),
  [
    'Rejected because',
    'wrap',
    (state, pool, index) => {
      const { codes } = queueFigures(state, [pool], index);
      return rejectionText(codes, codes.length);
    },
  ],
];

/**
 * The texts of one row.
 * @template {unknown[]} Row
 * @param {Column<Row>[]} columns
 * @param {Row} row
 */
const texts = (columns, ...row) => columns.map(([, , text]) => text(...row));

/**
 * The cells of one engine as texts; `index` null means now.
 * @param {FleetState} state
 * @param {number} row
 * @param {number | null} index
 */
export const tableRow = (state, row, index) => texts(ENGINES, state, row, index);

/**
 * The cells of one pool in one column of time.
 * @param {FleetState} state
 * @param {number} pool
 * @param {number} index
 */
export const lineRow = (state, pool, index) => texts(LINES, state, pool, index);

/**
 * Return the columns of a table over time, newest first; about `most` at most.
 * Of `total` columns from number `first`, they are those whose number is a multiple of `step`, so that rows stay the
 * same as time advances.
 * @param {number} first
 * @param {number} total
 */
export function everyFew(first, total, most = MOMENTS) {
  const step = Math.ceil(total / most);
  const columns = [];
  for (let column = total - 1; column >= 0; column -= 1) if ((first + column) % step === 0) columns.push(column);
  return { step, columns };
}

const VIEWS = { engines: 'Engines', lines: 'Lines', queue: 'Queue', strip: 'Strip', moments: 'Moments' };

export class TableTwin {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.root = byId('twin');
    this.shown = 'engines';
    this.page = 0;
    this.key = '';
    this.headKey = '';
    this.tabs = byId('twin-tabs');
    this.table = make('table');
    this.caption = make('caption');
    this.head = make('thead');
    this.body = make('tbody');
    this.table.append(this.caption, this.head, this.body);
    byId('twin-body').append(this.table);
    this.tabs.replaceChildren(
      ...Object.entries(VIEWS).map(([name, words]) => {
        const button = make('button', '', words);
        button.type = 'button';
        button.dataset.view = name;
        button.addEventListener('click', () => this.#choose(name));
        return button;
      }),
    );
    byId('twin-more').addEventListener('click', () => this.#turn());
  }

  /** Write the rows that changed; called per frame while the table is shown. */
  update() {
    const { view } = this;
    const { state } = view;
    if (!view.table || state.index === null) return;
    for (const button of findAll(this.tabs, 'button'))
      button.setAttribute('aria-pressed', String(button.dataset.view === this.shown));
    if (this.shown === 'engines') this.#engines();
    else this.#overTime();
  }

  /** @param {string} name */
  #choose(name) {
    Object.assign(this, { shown: name, page: 0, key: '' });
    this.body.replaceChildren();
    this.update();
  }

  #turn() {
    const pages = Math.ceil(this.view.scopeRows.length / PAGE);
    this.page = (this.page + 1) % pages;
    this.update();
    byId('twin-body').scrollTop = 0;
  }

  /** @param {[title: string, kind: string, ...rest: unknown[]][]} heads */
  #columns(heads) {
    const key = JSON.stringify(heads);
    if (this.headKey === key) return;
    this.headKey = key;
    this.head.replaceChildren(
      make(
        'tr',
        '',
        ...heads.map(([words, kind]) => {
          const cell = make('th', kind, words);
          cell.scope = 'col';
          return cell;
        }),
      ),
    );
    this.body.replaceChildren();
  }

  #engines() {
    const { state, cell, cursor, engineRows, scopeRows } = this.view;
    // The table lists all engines in pages, including those folded in the heatmap.
    const all = engineRows.length === scopeRows.length ? engineRows : scopeRows;
    const pages = Math.max(1, Math.ceil(all.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const rows = all.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const index = cursor && cell ? cell.index : null;
    this.#columns(ENGINES);
    const when =
      index === null
        ? `Now, ${clock(this.view.end ? state.timeOf(state.last + 1) : state.at)} ${zoneName()}`
        : `Column of ${clock(state.timeOf(index))} ${zoneName()}; peaks within ${stepWords(state.columnS)}`;
    setText(
      this.caption,
      pages > 1
        ? `${when}. Engines ${this.page * PAGE + 1} to ${this.page * PAGE + rows.length} of ${whole(all.length)}`
        : when,
    );
    byId('twin-more').hidden = pages < 2;
    if (this.body.children.length !== rows.length) this.body.replaceChildren(...rows.map(() => this.#row()));
    const lines = findAll(this.body, 'tr');
    rows.forEach((row, at) => this.#fill(lines[at], row, index));
  }

  #row() {
    const row = make('tr', 'opens', ...ENGINES.map(([, kind]) => make('td', kind)));
    row.addEventListener('click', () => this.view.openEngine(row.dataset.engine ?? ''));
    return row;
  }

  /**
   * @param {HTMLElement} line
   * @param {number} row
   * @param {number | null} index
   */
  #fill(line, row, index) {
    const { state, engineId } = this.view;
    const engine = state.engines[row];
    line.dataset.engine = engine.id;
    line.classList.toggle('selected', engine.id === engineId);
    const cells = findAll(line, 'td');
    tableRow(state, row, index).forEach((text, column) => {
      const cell = cells[column];
      if (cell.dataset.text === text) return;
      cell.dataset.text = text;
      if (column === 0) {
        const button = make('button', 'row-button', text);
        button.type = 'button';
        cell.replaceChildren(button);
      } else if (column === 1) cell.replaceChildren(make('span', 'state-cell', stateShape(text), text));
      else cell.textContent = text;
    });
  }

  /** Write lines, strip, and moments, which change per column, not per frame. */
  #overTime() {
    const { state, pools } = this.view;
    const key = [this.shown, state.generation, state.index, state.hourIndex, pools.join(), state.markers.length].join(
      '|',
    );
    byId('twin-more').hidden = true;
    if (key === this.key) return;
    this.key = key;
    if (this.shown === 'lines') this.#figures(state, pools, LINES);
    else if (this.shown === 'queue') this.#figures(state, pools, QUEUE);
    else if (this.shown === 'strip') this.#strip(state, pools);
    else this.#moments(state, pools);
  }

  /**
   * @param {string} caption
   * @param {[title: string, kind: string][]} heads
   * @param {string[][]} rows
   */
  #show(caption, heads, rows) {
    this.#columns(heads);
    setText(this.caption, caption);
    this.body.replaceChildren(
      ...rows.map((row) => make('tr', '', ...row.map((text, column) => make('td', heads[column][1], text)))),
    );
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   * @param {Column<[FleetState, number, number]>[]} columns
   */
  #figures(state, pools, columns) {
    const { step, columns: shown } = everyFew(state.first, state.columns, Math.ceil(MOMENTS / pools.length));
    const width = stepWords(state.columnS);
    const every = step > 1 ? `every ${stepWords(step * state.columnS)}` : '';
    const words = state.spanS > 43_200 ? dayClock : clock;
    this.#show(
      columns === LINES
        ? `Lines, newest first; ${every || `columns of ${width}`}`
        : `Queue at the gateway, newest first; queued requests: peak per ${width}; ` +
            `rates: at the end of each${every && `; ${every}`}`,
      [
        [`Time, ${zoneName()}`, ''],
        ['Pool', ''],
        ...columns.map(([title, kind]) => /** @type {[string, string]} */ ([title, kind])),
      ],
      shown.flatMap((column) => {
        const index = state.first + column;
        return pools.map((pool) => [
          words(state.timeOf(index)),
          state.pools[pool].name,
          ...texts(columns, state, pool, index),
        ]);
      }),
    );
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   */
  #strip(state, pools) {
    const from = state.hourIndex - state.hourColumns + 1;
    const { step, columns } = everyFew(from, state.hourColumns);
    const words = state.hourColumns * state.hourColumnS > 43_200 ? dayClock : clock;
    /**
     * @param {number} pool
     * @param {number} column
     */
    const peak = (pool, column) => {
      const first = pool * state.hourColumns + column;
      const known = [...state.hour.slice(first, first + Math.min(step, state.hourColumns - column))];
      return known.reduce((most, value) => (most >= value || Number.isNaN(value) ? most : value), NaN);
    };
    this.#show(
      `Strip, newest first; longest wait of any engine per ${stepWords(state.hourColumnS)}` +
        (step > 1 ? `, maximum of ${step} columns` : ''),
      [
        [`Time, ${zoneName()}`, ''],
        ...pools.map((pool) => /** @type {[string, string]} */ ([`${state.pools[pool].name}, peak wait`, 'number'])),
      ],
      columns.map((column) => [
        words((from + column) * state.hourColumnS),
        ...pools.map((pool) => duration(peak(pool, column))),
      ]),
    );
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   */
  #moments(state, pools) {
    const ids = pools.map((pool) => state.pools[pool].id);
    const markers = state.markers.filter((marker) => ids.includes(marker.pool_id)).reverse();
    this.#show(
      `${count(markers.length, 'moment')} marked, newest first`,
      [
        [`Time, ${zoneName()}`, ''],
        ['Pool', ''],
        ['What happened', 'wrap'],
      ],
      markers.map((marker) => [clock(marker.at), state.pools[state.poolRow(marker.pool_id)].name, marker.text]),
    );
  }
}
