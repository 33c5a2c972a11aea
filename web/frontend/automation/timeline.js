/* The charts of a pool on one time axis with one cursor; refetched while the range ends now. */

import { ago, clock, count, dayClock, minuteClock, zoneName } from '../shell/format.js';
import { byId, find, findAll, icon, isWithin, make, setText } from '../shell/element.js';
import { arrangeMarkers, timeTicks } from '../charts/time_axis.js';
import { onPaletteChange, paletteChanged } from '../charts/palette.js';
import { chartRows, summary } from './chart_rows.js';
import { valueAt } from './series.js';
import { showTwin } from './twin.js';
/** @import { Capsule } from '../charts/time_axis.js' */
/** @import { ChartData, ChartRow, ChartSeries } from './chart_rows.js' */
/** @import { Steps } from './steps.js' */

/** @type {Record<string, number>} */
const EVERY_MS = { '5m': 5000, '1h': 5000, '24h': 30_000 };
const NARROW_PX = 480;
/** @type {Record<string, string>} */
const ICONS = {
  scaling: 'i-sort',
  prefill_decode: 'i-restart',
  engine_health: 's-quarantined',
  advice: 's-unknown',
  freeze: 'i-pause',
  unfreeze: 'i-play',
  override: 'i-automation',
  follow: 'i-return',
};

export class Timeline {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.rows = byId('chart-rows');
    this.range = root.dataset.range ?? '';
    this.end = new URLSearchParams(location.search).get('end') ?? '';
    /** @type {number | null} */
    this.cursor = null;
    this.table = false;
    /** @type {Map<string, { picture: Steps, values: HTMLElement, range: Element }>} */
    this.pictures = new Map();
    /** @type {ChartData | null} */
    this.data = null;
    /** @type {ChartRow[] | null} */
    this.shown = null;
    /** @type {ChartData['marks'] | null} The marks under the pointer. */
    this.pointed = null;
    this.failure = '';
    this.keys = '';
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.lane = make('div', 'chart-lane');
    this.axis = make('div', 'chart-axis');
    onPaletteChange(() => this.#draw());
    // The theme button is in another bundle with its own palette.
    new MutationObserver(paletteChanged).observe(document.documentElement, { attributeFilter: ['data-theme'] });
    for (const query of ['(prefers-color-scheme: light)', '(prefers-contrast: more)', '(forced-colors: active)'])
      matchMedia(query).addEventListener('change', paletteChanged);
    new ResizeObserver(() => this.data && this.#layLane()).observe(this.rows);
    this.rows.addEventListener('pointermove', (event) => this.#point(event));
    this.rows.addEventListener('pointerleave', () => this.setCursor(null));
    document.addEventListener('visibilitychange', () => !document.hidden && this.load());
  }

  /**
   * Show another range and store it in the address.
   * @param {string} range
   */
  setRange(range) {
    this.range = range;
    const address = new URL(location.href);
    address.searchParams.set('range', range);
    history.replaceState(null, '', address);
    this.#keep(range);
    for (const button of findAll(document, '#automation-range button'))
      button.setAttribute('aria-pressed', String(button.dataset.range === range));
    this.load();
  }

  /**
   * Put the range into the links of the page.
   * @param {string} range
   */
  #keep(range) {
    const page = byId('automation');
    const fragment = new URL(page.dataset.refresh ?? '', location.href);
    fragment.searchParams.set('range', range);
    page.dataset.refresh = fragment.pathname + fragment.search;
    for (const link of findAll(page, 'a[href*="do="], .drawer a', HTMLAnchorElement)) {
      const target = new URL(link.href);
      if (target.pathname !== location.pathname) continue;
      target.searchParams.set('range', range);
      link.href = target.pathname + target.search;
    }
    for (const field of findAll(page, '.drawer input[name="range"]', HTMLInputElement)) field.value = range;
  }

  async load() {
    clearTimeout(this.timer);
    const asked = this.range;
    const query = new URLSearchParams({ range: asked, ...(this.end && { end: this.end }) });
    try {
      const answer = await fetch(`${this.root.dataset.address}?${query}`, { headers: { Accept: 'application/json' } });
      if (!answer.ok) throw new Error((await answer.json()).error ?? `the server answered ${answer.status}`);
      const data = await answer.json();
      if (asked !== this.range) return;
      this.data = data;
      this.failure = '';
      this.#build(data);
    } catch (error) {
      if (asked !== this.range) return;
      this.failure =
        error instanceof Error && !(error instanceof TypeError) ? error.message : 'the server does not answer';
    }
    this.root.classList.toggle('stale', Boolean(this.failure));
    this.#writeReadout();
    if (!this.end && !document.hidden) this.timer = setTimeout(() => this.load(), EVERY_MS[this.range]);
  }

  /**
   * Set the cursor to a moment; null removes it.
   * @param {number | null} at
   */
  setCursor(at) {
    const { data } = this;
    this.cursor = at === null || !data ? null : Math.max(data.from_s, Math.min(data.to_s, at));
    this.#draw();
    this.#writeReadout();
  }

  /** @param {number} columns */
  moveCursor(columns) {
    if (this.data) this.setCursor((this.cursor ?? this.data.to_s) + columns * this.data.column_s);
  }

  toggleTable() {
    this.table = !this.table;
    this.rows.hidden = this.table;
    byId('chart-twin').hidden = !this.table;
    byId('chart-table').setAttribute('aria-pressed', String(this.table));
    if (this.data) this.#build(this.data);
  }

  /** @param {ChartData} data */
  #build(data) {
    const shown = chartRows(data);
    setText(byId('automation-clock'), `${dayClock(data.from_s)} \u2013 ${clock(data.to_s)} ${zoneName()}`);
    if (this.table) {
      showTwin(byId('chart-twin'), data, shown);
      return;
    }
    const keys = shown.map((row) => row.key).join(' ');
    if (this.keys !== keys) this.#make(shown);
    this.keys = keys;
    this.shown = shown;
    this.#layLane();
    this.#draw();
  }

  /** @param {ChartRow[]} shown */
  #make(shown) {
    this.pictures.clear();
    const rows = shown.flatMap((row) => {
      const picture = document.createElement('hw-steps');
      picture.setAttribute('role', 'img');
      const name = make('div', 'chart-name', make('b', '', row.name), make('span'), make('span', '', row.note ?? ''));
      const values = make('ul', 'chart-values', ...row.series.map((series) => this.#valueLine(series)));
      this.pictures.set(row.key, { picture, values, range: name.children[1] });
      const made = make('div', 'chart-row', name, picture, values);
      return row.heading ? [make('h3', 'chart-heading', row.heading), made] : [made];
    });
    this.rows.replaceChildren(this.lane, ...rows, this.axis);
  }

  /** @param {ChartSeries} series */
  #valueLine(series) {
    const key = make('span', 'chart-key');
    const style = series.dash.length ? 'dashed' : 'solid';
    key.style.borderTop = `${Math.max(1, series.width)}px ${style} var(${series.colour})`;
    return make('li', '', key, make('span', '', series.name), make('b'));
  }

  #draw() {
    const { data } = this;
    if (!this.shown || !data || this.table) return;
    const marks = data.marks.map((mark) => mark.at);
    for (const row of this.shown) {
      const parts = this.pictures.get(row.key);
      if (!parts) continue;
      const { picture, values, range } = parts;
      /** @param {ChartSeries} series */
      const worth = (series) => valueAt(series, this.cursor ?? data.to_s);
      picture.show(row, marks, this.cursor);
      setText(range, row.range);
      const words = summary(row, worth);
      if (picture.getAttribute('aria-label') !== words) picture.setAttribute('aria-label', words);
      const figures = findAll(values, 'li > b');
      row.series.forEach((series, index) => setText(figures[index], series.words(worth(series))));
    }
  }

  #layLane() {
    const { data } = this;
    if (!this.shown || !data || this.table) return;
    const width = this.lane.clientWidth;
    const { from_s: from, to_s: to, marks } = data;
    const placed = arrangeMarkers(marks.map((mark) => ({ ...mark, x: ((mark.at - from) / (to - from)) * width })));
    const focused = find(this.lane, ':focus')?.dataset.at;
    const capsules = placed.map((stack) => this.#capsule(stack, width));
    this.lane.replaceChildren(...capsules);
    if (focused) capsules.find((capsule) => capsule.dataset.at === focused)?.focus();
    const ticks = timeTicks(from, to - from, 92, width < NARROW_PX ? 2 : 1).map(([label, left]) => {
      const tick = make('span', '', label);
      tick.style.left = `${left}%`;
      return tick;
    });
    this.axis.replaceChildren(...ticks, make('span', 'axis-now', data.live ? 'now' : minuteClock(to)));
  }

  /**
   * @param {Capsule<ChartData['marks'][number] & { x: number }>} capsule
   * @param {number} width
   */
  #capsule({ x, label, wordy, markers }, width) {
    const [first] = markers;
    const narrow = !wordy || x > width - 80;
    const button = make(
      'button',
      `mark-event${narrow ? '' : ' wordy'}`,
      icon(ICONS[first.kind] ?? 'i-events'),
      ...(narrow ? [] : [label]),
    );
    button.type = 'button';
    button.dataset.at = String(first.at);
    button.style.left = `${x}px`;
    // The accessible name begins with the visible label (WCAG 2.5.3).
    const text = markers
      .map((mark) => `${clock(mark.at)} ${mark.text}`)
      .slice(0, 4)
      .join(' ');
    button.setAttribute('aria-label', narrow ? text : `${label}: ${text}`);
    const show = () => {
      this.pointed = markers;
      this.setCursor(first.at);
    };
    button.addEventListener('pointerenter', show);
    button.addEventListener('focus', show);
    for (const kind of ['pointerleave', 'blur'])
      button.addEventListener(kind, () => {
        this.pointed = null;
      });
    return button;
  }

  /** @param {PointerEvent} event */
  #point(event) {
    const { data } = this;
    if (!data || isWithin(event, '.mark-event')) return;
    const box = this.lane.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    this.setCursor(share < 0 || share > 1 ? null : data.from_s + share * (data.to_s - data.from_s));
  }

  /** Write the line above the charts: the plan under the cursor, or the moment. */
  #writeReadout() {
    const readout = byId('chart-readout');
    if (this.failure) {
      readout.replaceChildren(
        make('b', '', 'Not up to date'),
        make('span', '', `The timeline is unavailable: ${this.failure}.`),
      );
      return;
    }
    if (!this.data) return;
    const at = this.cursor ?? this.data.to_s;
    const when = [
      make('b', '', clock(at)),
      make('span', '', this.cursor === null && this.data.live ? 'now' : ago(this.data.to_s - at)),
    ];
    const plans = this.pointed ?? [];
    const notes = plans.slice(-3).map((mark) => make('span', '', make('i', '', mark.text)));
    if (!notes.length)
      notes.push(
        make(
          'span',
          '',
          this.data.marks.length
            ? `${count(this.data.marks.length, 'mark')} of plans and manual changes; hover over one for its reason`
            : 'No plans or manual changes in this range.',
        ),
      );
    readout.replaceChildren(...when, ...notes);
  }
}
