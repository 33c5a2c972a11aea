/* The Fleet page: connects timeline, view and parts, and updates the parts that a change affects. */

import { frameTimes } from '../charts/redraw_loop.js';
import { onPaletteChange } from '../charts/palette.js';
import { Drawer } from './drawer/drawer.js';
import { byId, make, required, sentence, setText } from '../shell/element.js';
import { gapsOf } from './heatmap/gaps.js';
import { listenToKeys } from './keys.js';
import { updateLegend } from './heatmap/legend.js';
import { LineCharts } from './line_charts.js';
import { LiveControl } from '../live/live_control.js';
import { MarkerLane } from './heatmap/marker_lane.js';
import { fittingLayout, labelWidth, rowTop } from './heatmap/panel_layout.js';
import { QueuePanel } from './queue/queue_panel.js';
import { updateReadout } from './heatmap/readout.js';
import { labelled } from './heatmap/role_mark.js';
import { Rows } from './heatmap/rows.js';
import { ScopeMenu } from './scope_menu.js';
import { Scrubber } from '../live/scrubber.js';
import { ENGINE_CHOSEN } from '../shell/palette.js';
import { spanWords, stepWords } from '../shell/span_words.js';
import { updateStatusLine } from './status_line.js';
import { TableTwin } from './table_twin.js';
import { Tiles, updateVerdict } from './tiles.js';
import { Timeline } from '../live/timeline.js';
import { View } from './view.js';
/** @import { Hour } from '../charts/hour.js' */
/** @import { Overlay } from '../charts/overlay.js' */
/** @import { End, Range } from '../live/timeline.js' */
/** @import { Layout, Sizes } from './heatmap/panel_layout.js' */

/** @type {Record<string, string>} */
const SORT_WORDS = { name: 'By name', load: 'By load' };
const NARROW_PAGE = matchMedia('(max-width: 719px)');

class FleetPage {
  constructor() {
    // Measure at once: the first draw may precede the report of the observer below.
    this.height = byId('work-area').getBoundingClientRect().height;
    /** @type {Layout | null} */
    this.layout = null;
    /** @type {[from: number, to: number][]} */
    this.gaps = [];
    this.view = new View((what) => this.#changed(what));
    this.view.targets = JSON.parse(byId('on-time-lines').dataset.targets || '{}');
    this.timeline = new Timeline({
      range: this.view.range,
      end: this.view.end,
      /** @param {boolean} keyframe */
      onFrame: (keyframe) => this.#frame(keyframe),
      onStatus: () => this.#status(),
    });
    this.view.state = this.timeline.state;
    /**
     * @param {Range} range
     * @param {End} end
     */
    const choose = (range, end) => this.view.setRange(range, end);
    this.live = new LiveControl(this.timeline, choose);
    this.scrubber = new Scrubber(this.timeline, (end) => choose(this.timeline.range, end));
    this.tiles = new Tiles();
    this.rows = new Rows(this.view);
    this.lane = new MarkerLane(this.view);
    this.charts = new LineCharts(this.view);
    this.queue = new QueuePanel(this.view);
    this.drawer = new Drawer(this.view, this.timeline);
    this.twin = new TableTwin(this.view);
    this.scope = new ScopeMenu(this.view);
    this.#listen();
    this.#showTable();
  }

  #listen() {
    new ResizeObserver(([entry]) => {
      this.height = entry.contentRect.height;
      this.#layOut();
    }).observe(byId('work-area'));
    const toggleTable = () => this.view.setTable(!this.view.table);
    byId('table-button').addEventListener('click', toggleTable);
    byId('sort-button').addEventListener('click', () => this.view.setSort(this.view.sort === 'name' ? 'load' : 'name'));
    byId('verdict-engine').addEventListener('click', (event) => {
      event.preventDefault();
      this.view.openEngine(byId('verdict-engine').dataset.engine ?? '');
    });
    listenToKeys({
      view: this.view,
      toggleLive: () => this.live.toggle(),
      toggleTable,
      /** @param {Range} range */
      setRange: (range) => this.view.setRange(range, this.timeline.end),
    });
    document.addEventListener(ENGINE_CHOSEN, (event) => {
      if (!(event instanceof CustomEvent)) return;
      event.preventDefault();
      this.view.openEngine(event.detail);
    });
    addEventListener('popstate', () => this.view.comeBack());
    byId('drawer-missing-back').addEventListener('click', (event) => {
      event.preventDefault();
      this.view.openEngine('');
    });
    NARROW_PAGE.addEventListener('change', () => this.#layOut());
    onPaletteChange(() => this.#draw());
  }

  #status() {
    this.live?.update();
    this.drawer?.updateVerbs();
    // A paused view has an address, so that it can be shared.
    const { timeline } = this;
    const pausedAt = timeline && timeline.fixed && !timeline.end ? Math.ceil(timeline.state.at ?? 0) : '';
    if (this.view && this.view.pausedAt !== pausedAt) {
      this.view.pausedAt = pausedAt;
      this.view.remember();
      this.#draw();
    }
  }

  get state() {
    return this.timeline.state;
  }

  /** @param {boolean} keyframe */
  #frame(keyframe) {
    const { view } = this;
    const other = view.state !== this.state;
    view.state = this.state;
    if (this.state.index === null && !keyframe) return;
    if (keyframe || other) {
      view.replan();
      this.#rebuild();
      this.drawer.toggle();
    }
    const failure = this.state.index === null ? this.timeline.failure : '';
    updateVerdict(this.state, { failure, past: Boolean(this.timeline.end) });
    updateStatusLine(this.state, Boolean(this.timeline.end));
    this.live.update();
    this.scrubber.update();
    this.tiles.update(view);
    this.#draw();
    byId('fleet').dataset.column = String(this.state.index ?? '');
    byId('fleet').dataset.range = this.timeline.range;
    byId('fleet').setAttribute('aria-busy', 'false');
    byId('fleet').dataset.frameMs = (frameTimes.at(-1) ?? 0).toFixed(2);
  }

  /** @param {string} what */
  #changed(what) {
    if (what === 'range') {
      byId('fleet').setAttribute('aria-busy', 'true');
      this.timeline.show(this.view.range, this.view.end);
      return;
    }
    if (what === 'rows' || (what === 'engine' && this.view.plan.some((group) => group.folded))) {
      this.view.replan();
      this.#rebuild();
      this.tiles.update(this.view);
    }
    if (what === 'table') this.#showTable();
    if (what === 'queue') this.#layOut();
    if (what === 'decision') this.drawer.toggle();
    if (what === 'engine') {
      this.drawer.toggle();
      this.tiles.update(this.view);
    }
    if (what === 'cursor') this.#cursor();
    else this.#draw();
  }

  /** Update everything that depends on the rows. */
  #rebuild() {
    const { view, state } = this;
    this.rows.build();
    this.scope.update();
    setText(required(byId('sort-button'), 'span'), SORT_WORDS[view.sort]);
    this.#empty();
    const names = view.rows.map((row) => labelled(state.engines[row]) ?? state.bands.factsOf(row).name);
    const width = labelWidth(
      names,
      view.plan.map((group) => state.pools[group.pool].name + (group.foldable ? ' 1,000  ' : '')),
    );
    byId('picture-grid').style.setProperty('--label-w', `${width}px`);
    byId('picture-grid').classList.toggle('several', view.plan.length > 1);
    if (state.index !== null) {
      setText(byId('work-sub'), `uncached prompt tokens assigned or running, peak per ${stepWords(state.columnS)}`);
      setText(
        byId('hour-name'),
        `Last ${spanWords(state.hourColumns * state.hourColumnS)
          .replace('one ', '')
          .replace('7 days', 'week')}`,
      );
      setText(byId('hour-note'), `peak, ${stepWords(state.hourColumnS)}`);
    }
    this.#layOut();
  }

  #layOut() {
    const { view } = this;
    if (!view.state) return;
    this.layout = fittingLayout(this.height, view.rows.length, view.plan.length, NARROW_PAGE.matches, view.queue);
    this.queue.fold(this.layout.folded);
    const grid = byId('picture-grid').style;
    /** @type {[property: string, size: keyof Sizes | 'overlay'][]} */
    const sizes = [
      ['--pitch', 'pitch'],
      ['--strip-h', 'strip'],
      ['--strip-gap', 'gap'],
      ['--line-h', 'line'],
      ['--queue-h', 'queue'],
      ['--hour-h', 'hour'],
      ['--overlay-h', 'overlay'],
    ];
    for (const [name, size] of sizes) grid.setProperty(name, `${this.layout[size]}px`);
    byId('rows').classList.toggle('roomy', this.layout.pitch >= 20);
    const area = byId('work-area');
    const { total } = this.layout;
    // After the body has grown, keep its height: it must not shrink again.
    const grown = total === Math.round(this.height) && area.style.minHeight;
    const least = this.height && (total > this.height || grown) ? `${total}px` : '';
    if (area.style.minHeight !== least) area.style.minHeight = least;
    this.#draw();
  }

  #draw() {
    const { view, state } = this;
    if (state.index === null || view.focus < 0 || !this.layout) return;
    updateLegend(state.pools[view.focus].ttft_slo_s);
    this.rows.update(this.layout);
    this.lane.update();
    this.charts.update();
    this.queue.update();
    /** @type {Hour} */ (byId('hour')).show(state, view.pools, state.pools[view.focus].ttft_slo_s);
    this.gaps = gapsOf(state);
    this.drawer.update();
    this.#cursor();
  }

  /** Update what depends on the cursor: readout, overlay, table. */
  #cursor() {
    const { view, state, layout } = this;
    if (state.index === null || !layout) return;
    updateReadout(view);
    this.twin.update();
    const { cell } = view;
    const moment = view.moment ?? cell?.index ?? null;
    const cellBox = cell && this.#box(cell.row);
    /** @type {Overlay} */ (byId('overlay')).show({
      columns: state.columns,
      gaps: this.gaps,
      lines: this.lane.markers.map(({ column, kind }) => ({ column, lead: kind === 'policy' })),
      crosshair: moment === null ? null : moment - state.first,
      row: view.engineRow >= 0 ? this.#box(view.engineRow) : null,
      cell: cell && cellBox && { column: cell.index - state.first, ...cellBox },
    });
  }

  /** @param {number} row */
  #box(row) {
    const { view, layout } = this;
    if (!layout) return null;
    for (const group of view.plan) {
      const index = group.rows.indexOf(row);
      if (index >= 0) return { top: rowTop(layout, view.plan, group.pool, index), height: layout.pitch };
    }
    return null;
  }

  #showTable() {
    const { table } = this.view;
    byId('twin').hidden = !table;
    byId('picture-grid').hidden = table || !this.view.rows.length;
    byId('table-button').setAttribute('aria-pressed', String(table));
  }

  /** Show why there is nothing to draw. */
  #empty() {
    const none = !this.view.rows.length;
    const empty = byId('empty');
    empty.hidden = !none;
    byId('picture-grid').hidden = none || this.view.table;
    if (!none) return;
    // Remove figures of an earlier view.
    Object.assign(byId('readout'), { textContent: '\u00a0' }).dataset.text = '';
    const { failure } = this.timeline;
    const words = failure
      ? ['No history', `${sentence(failure)} Press Space for live.`]
      : this.timeline.fromLive
        ? this.state.at === null
          ? ['No live data yet', 'The gateway publishes its first sample within a second of its start.']
          : ['No engines yet', 'Connect one, or run make run for a demo fleet of 8.']
        : ['Nothing was recorded', 'Headway was not running, or there were no engines. Press Space for live.'];
    empty.replaceChildren(make('b', '', words[0]), make('span', '', words[1]));
  }
}

/** Start the page. */
export function startFleetPage() {
  return new FleetPage();
}
