/* The Fleet page: puts feed, view and parts together, and says which of them a change concerns. */

import { onPaletteChange } from '../scale/palette.js';
import { byId, make, setText } from './element.js';
import { Drawer } from './drawer.js';
import { listenToKeys } from './keys.js';
import { updateLegend } from './legend.js';
import { LineCharts } from './line_charts.js';
import { LiveControl } from './live_control.js';
import { LiveFeed } from './live_feed.js';
import { MarkerLane } from './marker_lane.js';
import { labelWidth, panelLayout, rowTop } from './panel_layout.js';
import { updateReadout } from './readout.js';
import { Rows } from './rows.js';
import { ScopeMenu } from './scope_menu.js';
import { updateStatusLine } from './status_line.js';
import { TableTwin } from './table_twin.js';
import { Tiles, updateVerdict } from './tiles.js';
import { View } from './view.js';

const SORT_WORDS = { name: 'By name', load: 'By load' };

class FleetPage {
  constructor() {
    this.height = 0;
    this.feed = new LiveFeed({ onFrame: (keyframe) => this.#frame(keyframe), onStatus: () => this.live?.update() });
    this.state = this.feed.state;
    this.view = new View(this.state, (what) => this.#changed(what));
    this.live = new LiveControl(this.feed);
    this.tiles = new Tiles();
    this.rows = new Rows(this.view);
    this.lane = new MarkerLane(this.view);
    this.charts = new LineCharts(this.view);
    this.drawer = new Drawer(this.view);
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
      this.view.openEngine(event.currentTarget.dataset.engine ?? '');
    });
    listenToKeys({ view: this.view, toggleLive: () => this.live.toggle(), toggleTable });
    onPaletteChange(() => this.#draw());
  }

  #frame(keyframe) {
    if (keyframe) {
      this.view.replan();
      this.#rebuild();
      this.drawer.toggle();
    }
    updateVerdict(this.state);
    updateStatusLine(this.state);
    this.tiles.update(this.view);
    this.#draw();
    byId('fleet').dataset.column = String(this.state.index ?? '');
  }

  #changed(what) {
    if (what === 'rows') {
      this.view.replan();
      this.#rebuild();
      this.tiles.update(this.view);
    }
    if (what === 'table') this.#showTable();
    if (what === 'engine') {
      this.drawer.toggle();
      this.tiles.update(this.view);
    }
    if (what === 'cursor') this.#cursor();
    else this.#draw();
  }

  /** Everything that depends on which rows there are. */
  #rebuild() {
    this.rows.build();
    this.scope.update();
    setText(byId('sort-button').querySelector('span'), SORT_WORDS[this.view.sort]);
    this.#empty();
    const width = labelWidth(this.view.rows.map((row) => this.state.engines[row].name), this.view.pools.map((pool) => this.state.pools[pool].name));
    byId('picture-grid').style.setProperty('--label-w', `${width}px`);
    this.#layOut();
  }

  #layOut() {
    const { view } = this;
    this.layout = panelLayout(this.height, view.rows.length, view.plan.length);
    const grid = byId('picture-grid').style;
    for (const [name, value] of [['--pitch', 'pitch'], ['--strip-h', 'strip'], ['--strip-gap', 'gap'], ['--line-h', 'line'], ['--hour-h', 'hour'], ['--overlay-h', 'overlay']]) {
      grid.setProperty(name, `${this.layout[value]}px`);
    }
    byId('rows').classList.toggle('roomy', this.layout.pitch >= 20);
    const least = this.height && this.layout.total > this.height ? `${this.layout.total}px` : '';
    if (byId('work-area').style.minHeight !== least) byId('work-area').style.minHeight = least;
    this.#draw();
  }

  #draw() {
    const { view, state } = this;
    if (state.index === null || view.focus < 0) return;
    updateLegend(state.pools[view.focus].ttft_slo_s);
    this.rows.update(this.layout);
    this.lane.update();
    this.charts.update();
    byId('hour').show(state, view.pools, state.pools[view.focus].ttft_slo_s);
    this.drawer.update();
    this.#cursor();
  }

  /** What follows the cursor: readout, overlay, table. */
  #cursor() {
    const { view, state, layout } = this;
    if (state.index === null || !layout) return;
    updateReadout(view);
    this.twin.update();
    const box = (row) => {
      const pool = state.poolRow(state.engines[row].pool);
      const place = view.plan.find((group) => group.pool === pool)?.rows.indexOf(row) ?? -1;
      return place < 0 ? null : { top: rowTop(layout, view.plan, pool, place), height: layout.pitch };
    };
    const { cell } = view;
    const cellBox = cell && box(cell.row);
    byId('overlay').show({
      columns: state.columns,
      lines: this.lane.markers.map(({ place, kind }) => ({ place, lead: kind === 'policy' })),
      crosshair: cell ? cell.index - state.first : null,
      row: view.engineRow >= 0 ? box(view.engineRow) : null,
      cell: cellBox && { place: cell.index - state.first, ...cellBox },
    });
  }

  #showTable() {
    const { table } = this.view;
    byId('twin').hidden = !table;
    byId('picture-grid').hidden = table || !this.view.rows.length;
    byId('table-button').setAttribute('aria-pressed', String(table));
  }

  /** Say what will be here while there is nothing to draw. */
  #empty() {
    const none = !this.view.rows.length;
    const empty = byId('empty');
    empty.hidden = !none;
    byId('picture-grid').hidden = none || this.view.table;
    if (!none) return;
    const [title, words] = this.state.at === null
      ? ['No live data yet', 'The gateway publishes its first sample within a second of its start.']
      : ['No engines yet', 'Register one, or run make run for a demo fleet of 8.'];
    empty.replaceChildren(make('b', '', title), make('span', '', words));
  }
}

/** Start the page. */
export function startFleetPage() {
  return new FleetPage();
}
