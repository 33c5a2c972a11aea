/* The same data as the pictures, as tables: the engines at the cursor's moment, the lines, the strip, the moments. */

import { clock, count, dayClock, duration, percentText, ratio, short, whole } from '../shell/format.js';
import { perSecond, queueFigures, refusalText } from './queue/queue_figures.js';
import { byId, findAll, make, setText, stateShape } from '../shell/element.js';
import { stepWords } from '../shell/span_words.js';
/** @import { FleetState } from '../live/fleet_state.js' */
/** @import { View } from './view.js' */

const HEAD = [
  ['Engine', ''],
  ['State', ''],
  ['Pool', ''],
  ['In flight, tok', 'number'],
  ['To go', 'number'],
  ['Mean to go', 'number'],
  ['Running', 'number'],
  ['Bound', 'number'],
  ['Oldest queued', 'number'],
  ['KV in use', 'number'],
  ['Hit, reported', 'number'],
  ['Hit, predicted', 'number'],
  ['Index', ''],
  ['Report age', 'number'],
];
const LINE_HEAD = [
  'Load CV',
  'On time',
  'Hit, reported',
  'TTFT p50',
  'TTFT p90',
  'TTFT p99',
  'Requests, /s',
  'Unbound',
  'Late',
];
/** Rows of one page of a table. */
const PAGE = 200;
/** Rows at most of the tables over time; where there are more columns, every second, third … is shown. */
const MOMENTS = 180;

/**
 * The cells of one engine as texts, in the order of HEAD; `index` null means now.
 * @param {FleetState} state
 * @param {number} row
 * @param {number | null} index
 */
export function tableRow(state, row, index) {
  const engine = state.engines[row];
  const at = index ?? state.index;
  /** @param {string} name */
  const value = (name) => (index === null ? state.nowOf(name, row) : state.engineAt(name, row, index));
  const kv = index === null ? state.nowOf('kv', row) : state.shareAt('kv', row, index);
  return [
    engine.name,
    index === null ? engine.state : state.stateAt(row, index) || 'unknown',
    state.pools[state.poolRow(engine.pool)].name,
    short(value('tokens')),
    duration(value('seconds')),
    duration(state.engineAt('mean_s', row, at)),
    whole(value('running')),
    whole(value('bound')),
    index === null && value('bound') > 0 ? duration(state.nowOf('oldest_s', row)) : '—',
    percentText(kv),
    percentText(state.shareAt('hit', row, at)),
    percentText(state.shareAt('predicted', row, at)),
    engine.trust || '—',
    index === null ? duration(state.nowOf('report_age_s', row)) : '—',
  ];
}

/**
 * Places of the columns shown in a table over time, newest first: of `total` columns from number `first` on those whose
 * number is a multiple of `step`, so that rows stay the same while time goes on; at most about `most` are left.
 * @param {number} first
 * @param {number} total
 */
export function everyFew(first, total, most = MOMENTS) {
  const step = Math.ceil(total / most);
  const places = [];
  for (let place = total - 1; place >= 0; place -= 1) if ((first + place) % step === 0) places.push(place);
  return { step, places };
}

/**
 * The cells of one pool in one column, in the order of LINE_HEAD.
 * @param {FleetState} state
 * @param {number} pool
 * @param {number} index
 */
export function lineRow(state, pool, index) {
  /** @param {string} name */
  const value = (name) => state.poolAt(name, pool, index);
  return [
    ratio(value('cv')),
    percentText(value('on_time')),
    percentText(value('hit')),
    duration(value('ttft_p50_s')),
    duration(value('ttft_p90_s')),
    duration(value('ttft_p99_s')),
    Number.isNaN(value('requests_per_s')) ? '—' : value('requests_per_s').toFixed(1),
    whole(value('unbound')),
    whole(value('late')),
  ];
}

const QUEUE_HEAD = [
  'Bound',
  'Unbound',
  'Oldest unbound',
  'Dispatched at once, /s',
  'After waiting, /s',
  'Wait, mean',
  'Wait, p90',
  'Overtaken, /s',
  'Migrated, /s',
  'Refused, /s',
];

/**
 * The cells of one pool's queue in one column, in the order of QUEUE_HEAD, and why requests were refused.
 * @param {FleetState} state
 * @param {number} pool
 * @param {number} index
 */
export function queueRow(state, pool, index) {
  /** @param {string} name */
  const value = (name) => state.poolAt(name, pool, index);
  const { codes } = queueFigures(state, [pool], index);
  return [
    whole(value('bound')),
    whole(value('unbound')),
    duration(value('oldest_wait_s')),
    perSecond(value('granted_at_once_per_s')),
    perSecond(value('granted_waited_per_s')),
    duration(value('queue_wait_mean_s')),
    duration(value('queue_wait_p90_s')),
    perSecond(value('overtaken_per_s')),
    perSecond(value('migrations_per_s')),
    perSecond(value('refusals_per_s')),
    refusalText(codes, codes.length),
  ];
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

  /** Write the rows that changed; called at the rate of the frames and only while it is shown. */
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

  /** @param {string[][]} heads */
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
    // In a large fleet most engines are folded away in the picture; the table has them all, page by page.
    const all = engineRows.length === scopeRows.length ? engineRows : scopeRows;
    const pages = Math.max(1, Math.ceil(all.length / PAGE));
    this.page = Math.min(this.page, pages - 1);
    const rows = all.slice(this.page * PAGE, (this.page + 1) * PAGE);
    const index = cursor && cell ? cell.index : null;
    this.#columns(HEAD);
    const when =
      index === null
        ? `Now, ${clock(this.view.end ? state.timeOf(state.last + 1) : state.at)} UTC`
        : `Column of ${clock(state.timeOf(index))} UTC; peaks within ${stepWords(state.columnS)}`;
    setText(
      this.caption,
      pages > 1
        ? `${when}. Engines ${this.page * PAGE + 1} to ${this.page * PAGE + rows.length} of ${whole(all.length)}`
        : when,
    );
    byId('twin-more').hidden = pages < 2;
    if (this.body.children.length !== rows.length) this.body.replaceChildren(...rows.map(() => this.#row()));
    const lines = findAll(this.body, 'tr');
    rows.forEach((row, place) => this.#fill(lines[place], row, index));
  }

  #row() {
    const row = make('tr', 'opens', ...HEAD.map(([, kind]) => make('td', kind)));
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
    const texts = tableRow(state, row, index);
    line.dataset.engine = engine.id;
    line.classList.toggle('selected', engine.id === engineId);
    const cells = findAll(line, 'td');
    texts.forEach((text, place) => {
      const cell = cells[place];
      if (cell.dataset.text === text) return;
      cell.dataset.text = text;
      if (place === 0) {
        const button = make('button', 'row-button', text);
        button.type = 'button';
        cell.replaceChildren(button);
      } else if (place === 1) cell.replaceChildren(make('span', 'state-cell', stateShape(text), text));
      else cell.textContent = text;
    });
  }

  /** Lines, strip and moments change with a column, not with every frame. */
  #overTime() {
    const { state, pools } = this.view;
    const key = [this.shown, state.generation, state.index, state.hourIndex, pools.join(), state.markers.length].join(
      '|',
    );
    byId('twin-more').hidden = true;
    if (key === this.key) return;
    this.key = key;
    if (this.shown === 'lines') this.#lines(state, pools);
    else if (this.shown === 'queue') this.#queue(state, pools);
    else if (this.shown === 'strip') this.#strip(state, pools);
    else this.#moments(state, pools);
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   */
  #lines(state, pools) {
    const several = pools.length > 1;
    this.#columns([
      ['Time, UTC', ''],
      ...(several ? [['Pool', '']] : []),
      ...LINE_HEAD.map((words) => [words, 'number']),
    ]);
    const { step, places } = everyFew(state.first, state.columns, Math.ceil(MOMENTS / pools.length));
    setText(
      this.caption,
      `Lines, newest first; ` +
        (step > 1 ? `every ${stepWords(step * state.columnS)}` : `columns of ${stepWords(state.columnS)}`),
    );
    const words = state.spanS > 43_200 ? dayClock : clock;
    this.body.replaceChildren(
      ...places.flatMap((place) =>
        pools.map((pool) =>
          cells(
            [
              words(state.timeOf(state.first + place)),
              ...(several ? [state.pools[pool].name] : []),
              ...lineRow(state, pool, state.first + place),
            ],
            several ? 2 : 1,
          ),
        ),
      ),
    );
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   */
  #queue(state, pools) {
    this.#columns([
      ['Time, UTC', ''],
      ['Pool', ''],
      ...QUEUE_HEAD.map((words) => [words, 'number']),
      ['Refused because', 'wrap'],
    ]);
    const { step, places } = everyFew(state.first, state.columns, Math.ceil(MOMENTS / pools.length));
    setText(
      this.caption,
      `Queue at the gateway, newest first; tickets are peaks within ${stepWords(state.columnS)}, ` +
        `rates those of its end${step > 1 ? `; every ${stepWords(step * state.columnS)}` : ''}`,
    );
    const words = state.spanS > 43_200 ? dayClock : clock;
    this.body.replaceChildren(
      ...places.flatMap((place) =>
        pools.map((pool) => {
          const texts = queueRow(state, pool, state.first + place);
          const line = cells(
            [words(state.timeOf(state.first + place)), state.pools[pool].name, ...texts.slice(0, -1)],
            2,
          );
          line.append(make('td', 'wrap', texts[texts.length - 1]));
          return line;
        }),
      ),
    );
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   */
  #strip(state, pools) {
    this.#columns([['Time, UTC', ''], ...pools.map((pool) => [`${state.pools[pool].name}, peak wait`, 'number'])]);
    const from = state.hourIndex - state.hourColumns + 1;
    const { step, places } = everyFew(from, state.hourColumns);
    setText(
      this.caption,
      `Strip, newest first; tallest queue of any engine, within ${stepWords(state.hourColumnS)}` +
        (step > 1 ? `, highest of ${step}` : ''),
    );
    const words = state.hourColumns * state.hourColumnS > 43_200 ? dayClock : clock;
    /**
     * @param {number} pool
     * @param {number} place
     */
    const peak = (pool, place) => {
      let most = NaN;
      for (let ahead = 0; ahead < step && place + ahead < state.hourColumns; ahead += 1) {
        const value = state.hour[pool * state.hourColumns + place + ahead];
        if (!(most >= value) && !Number.isNaN(value)) most = value;
      }
      return most;
    };
    this.body.replaceChildren(
      ...places.map((place) =>
        cells([words((from + place) * state.hourColumnS), ...pools.map((pool) => duration(peak(pool, place)))], 1),
      ),
    );
  }

  /**
   * @param {FleetState} state
   * @param {number[]} pools
   */
  #moments(state, pools) {
    this.#columns([
      ['Time, UTC', ''],
      ['Pool', ''],
      ['What happened', 'wrap'],
    ]);
    const ids = pools.map((pool) => state.pools[pool].id);
    const markers = state.markers.filter((marker) => ids.includes(marker.pool_id)).reverse();
    setText(this.caption, `${count(markers.length, 'moment')} marked, newest first`);
    this.body.replaceChildren(
      ...markers.map((marker) =>
        cells([clock(marker.at), state.pools[state.poolRow(marker.pool_id)].name, marker.text], 3),
      ),
    );
  }
}

/**
 * A table row of texts; those from `numbersFrom` on are numbers.
 * @param {string[]} texts
 * @param {number} numbersFrom
 */
function cells(texts, numbersFrom) {
  return make(
    'tr',
    '',
    ...texts.map((text, place) => make('td', place >= numbersFrom ? 'number' : place === 2 ? 'wrap' : '', text)),
  );
}
