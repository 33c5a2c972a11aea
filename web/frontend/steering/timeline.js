/* The charts of a pool: fetched anew while they reach until now, on one time axis with one cursor. */

import { ago, clock, count, dayClock } from '../figures/format.js';
import { byId, icon, make, setText } from '../page/element.js';
import { placeMarkers } from '../page/marker_lane.js';
import { onPaletteChange, paletteChanged } from '../scale/palette.js';
import { chartRows, summary } from './chart_rows.js';
import { valueAt } from './series.js';
import { showTwin } from './twin.js';

const EVERY_MS = { '5m': 5000, '1h': 5000, '24h': 30_000 };
/** Spans up to which ticks stand so many seconds apart. */
const AXIS_STEPS = [[600, 60], [7200, 600], [Infinity, 3 * 3600]];
const NARROW_PX = 480;
const ICONS = { scaling: 'i-sort', prefill_decode: 'i-restart', engine_health: 's-quarantined', advice: 's-unknown', freeze: 'i-pause', unfreeze: 'i-play', override: 'i-steering', follow: 'i-return' };

export class Timeline {
  constructor(root) {
    this.root = root;
    this.rows = byId('chart-rows');
    this.range = root.dataset.range;
    this.end = new URLSearchParams(location.search).get('end') ?? '';
    this.cursor = null;
    this.table = false;
    this.pictures = new Map();
    onPaletteChange(() => this.#draw());
    // The theme's button lives in another bundle, whose palette is its own.
    new MutationObserver(paletteChanged).observe(document.documentElement, { attributeFilter: ['data-theme'] });
    for (const query of ['(prefers-color-scheme: light)', '(prefers-contrast: more)', '(forced-colors: active)']) matchMedia(query).addEventListener('change', paletteChanged);
    new ResizeObserver(() => this.data && this.#layLane()).observe(this.rows);
    this.rows.addEventListener('pointermove', (event) => this.#point(event));
    this.rows.addEventListener('pointerleave', () => this.setCursor(null));
    document.addEventListener('visibilitychange', () => !document.hidden && this.load());
  }

  /** Show another range; the address keeps it. */
  setRange(range) {
    this.range = range;
    const address = new URL(location.href);
    address.searchParams.set('range', range);
    history.replaceState(null, '', address);
    this.#keep(address.searchParams);
    for (const button of document.querySelectorAll('#steering-range button')) button.setAttribute('aria-pressed', String(button.dataset.range === range));
    this.load();
  }

  /** Links of the page and its news keep the range. */
  #keep(shown) {
    const page = byId('steering');
    const fragment = new URL(page.dataset.fragment, location.href);
    fragment.searchParams.set('range', shown.get('range'));
    page.dataset.fragment = fragment.pathname + fragment.search;
    for (const link of page.querySelectorAll('a[href*="do="], .drawer a')) {
      const target = new URL(link.href);
      if (target.pathname !== location.pathname) continue;
      target.searchParams.set('range', shown.get('range'));
      link.href = target.pathname + target.search;
    }
    for (const field of page.querySelectorAll('.drawer input[name="range"]')) field.value = shown.get('range');
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
      this.#build();
    } catch (error) {
      if (asked !== this.range) return;
      this.failure = error instanceof TypeError ? 'the server does not answer' : error.message;
    }
    this.root.classList.toggle('stale', Boolean(this.failure));
    this.#tell();
    if (!this.end && !document.hidden) this.timer = setTimeout(() => this.load(), EVERY_MS[this.range]);
  }

  /** Put the cursor on a moment, null for none. */
  setCursor(at) {
    this.cursor = at === null ? null : Math.max(this.data.from_s, Math.min(this.data.to_s, at));
    this.#draw();
    this.#tell();
  }

  moveCursor(columns) {
    if (this.data) this.setCursor((this.cursor ?? this.data.to_s) + columns * this.data.column_s);
  }

  toggleTable() {
    this.table = !this.table;
    this.rows.hidden = this.table;
    byId('chart-twin').hidden = !this.table;
    byId('chart-table').setAttribute('aria-pressed', String(this.table));
    if (this.data) this.#build();
  }

  #build() {
    const shown = chartRows(this.data);
    setText(byId('steering-clock'), `${dayClock(this.data.from_s)} \u2013 ${clock(this.data.to_s)} UTC`);
    if (this.table) {
      showTwin(byId('chart-twin'), this.data, shown);
      return;
    }
    const keys = shown.map((row) => row.key).join(' ');
    if (this.keys !== keys) this.#make(shown);
    this.keys = keys;
    this.shown = shown;
    this.#layLane();
    this.#draw();
  }

  #make(shown) {
    this.lane = make('div', 'chart-lane');
    this.axis = make('div', 'chart-axis');
    this.pictures.clear();
    const rows = shown.flatMap((row) => {
      const picture = document.createElement('sy-steps');
      picture.setAttribute('role', 'img');
      const name = make('div', 'chart-name', make('b', '', row.name), make('span'), make('span', '', row.note ?? ''));
      const values = make('ul', 'chart-values', ...row.series.map((each) => this.#valueLine(each)));
      this.pictures.set(row.key, { picture, values, range: name.children[1] });
      const made = make('div', 'chart-row', name, picture, values);
      return row.heading ? [make('h3', 'chart-heading', row.heading), made] : [made];
    });
    this.rows.replaceChildren(this.lane, ...rows, this.axis);
  }

  #valueLine(series) {
    const key = make('span', 'chart-key');
    key.style.borderTop = `${Math.max(1, series.width)}px ${series.dash.length ? 'dashed' : 'solid'} var(${series.colour})`;
    return make('li', '', key, make('span', '', series.name), make('b'));
  }

  #draw() {
    if (!this.shown || this.table) return;
    const marks = this.data.marks.map((mark) => mark.at);
    for (const row of this.shown) {
      const { picture, values, range } = this.pictures.get(row.key);
      const worth = (series) => valueAt(series, this.cursor ?? this.data.to_s);
      picture.show(row, marks, this.cursor);
      setText(range, row.range);
      const words = summary(row, worth);
      if (picture.getAttribute('aria-label') !== words) picture.setAttribute('aria-label', words);
      row.series.forEach((series, place) => setText(values.children[place].lastElementChild, series.words(worth(series))));
    }
  }

  #layLane() {
    if (!this.shown || this.table) return;
    const width = this.lane.clientWidth;
    const { from_s: from, to_s: to, marks } = this.data;
    const placed = placeMarkers(marks.map((mark) => ({ ...mark, x: ((mark.at - from) / (to - from)) * width })));
    const focused = this.lane.contains(document.activeElement) ? document.activeElement.dataset.at : '';
    const capsules = placed.map((stack) => this.#capsule(stack, width));
    this.lane.replaceChildren(...capsules);
    if (focused) capsules.find((each) => each.dataset.at === focused)?.focus();
    const [, step] = AXIS_STEPS.find(([longest]) => to - from <= longest);
    const every = width < NARROW_PX ? step * 2 : step;
    const ticks = [];
    for (let at = Math.ceil(from / every) * every; at < to; at += every) {
      const share = (100 * (at - from)) / (to - from);
      if (share > 92 || share < 2) continue;
      const tick = make('span', '', every >= 600 ? clock(at).slice(0, 5) : clock(at));
      tick.style.left = `${share}%`;
      ticks.push(tick);
    }
    this.axis.replaceChildren(...ticks, make('span', 'axis-now', this.data.live ? 'now' : clock(to).slice(0, 5)));
  }

  #capsule({ x, label, wordy, markers }, width) {
    const [first] = markers;
    const narrow = !wordy || x > width - 80;
    const button = make('button', `mark-event${narrow ? '' : ' wordy'}`, icon(ICONS[first.kind] ?? 'i-events'), ...(narrow ? [] : [label]));
    button.type = 'button';
    button.dataset.at = String(first.at);
    button.style.left = `${x}px`;
    // The name begins with what is written on it, so that people can say what they see.
    const told = markers.map((mark) => `${clock(mark.at)} ${mark.text}`).slice(0, 4).join(' ');
    button.setAttribute('aria-label', narrow ? told : `${label}: ${told}`);
    const tell = () => {
      this.told = markers;
      this.setCursor(first.at);
    };
    button.addEventListener('pointerenter', tell);
    button.addEventListener('focus', tell);
    for (const kind of ['pointerleave', 'blur']) button.addEventListener(kind, () => (this.told = null));
    return button;
  }

  #point(event) {
    if (!this.shown || event.target.closest('.mark-event')) return;
    const box = this.lane.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    this.setCursor(share < 0 || share > 1 ? null : this.data.from_s + share * (this.data.to_s - this.data.from_s));
  }

  /** The line above the pictures: the plan under the cursor, or the moment. */
  #tell() {
    const readout = byId('chart-readout');
    if (this.failure) {
      readout.replaceChildren(make('b', '', 'Not up to date'), make('span', '', `The timeline cannot be had: ${this.failure}.`));
      return;
    }
    if (!this.data) return;
    const at = this.cursor ?? this.data.to_s;
    const when = [make('b', '', clock(at)), make('span', '', this.cursor === null && this.data.live ? 'now' : ago(this.data.to_s - at))];
    const plans = this.told ?? [];
    const told = plans.slice(-3).map((mark) => make('span', '', make('i', '', mark.text)));
    if (!told.length) told.push(make('span', '', this.data.marks.length ? `${count(this.data.marks.length, 'mark')} for plans and changes by hand; point at one to read why` : 'No plan changed anything in this time.'));
    readout.replaceChildren(...when, ...told);
  }
}
