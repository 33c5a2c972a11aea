/* The view state: scope, range, sort, open engine and decision, cursor. One object, one listener. */

import { FleetState } from '../live/fleet_state.js';
import { readUrl, writeUrl } from './url_state.js';
import { rowPlan } from './heatmap/row_plan.js';
/** @import { End, Range } from '../live/timeline.js' */
/** @import { RowGroup } from './heatmap/row_plan.js' */

/** @typedef {{ row: number, index: number, engineId: string }} Cell a row and a column; engineId is '' for a band */
/**
 * Returns the parts of the readout; `live` if screen readers announce them.
 * @typedef {(() => string[][]) & { live?: boolean }} Readout
 */

/**
 * Selections over a FleetState; each change calls `changed(what)`: 'rows', 'cursor', 'engine', 'decision', 'table',
 * 'queue' or 'range'.
 */
export class View {
  state = new FleetState();
  /** @type {Cell | null} */
  cursor = null;
  /** @type {Cell | null} */
  hover = null;
  /** @type {RowGroup[]} */
  plan = [];
  /** @type {End} The end of a paused view. */
  pausedAt = '';
  /** @type {Readout | null} Readout of the marker or queue under the pointer, instead of the cell. */
  readout = null;
  /** @type {number | null} Column under the pointer in a chart without rows. */
  moment = null;

  /** @type {Record<string, number>} Pool id → target share on time; '' has that of all other pools. */
  targets = {};

  /** @param {(what: string) => void} changed */
  constructor(changed) {
    this.changed = changed;
    const asked = readUrl(location.search);
    this.poolId = asked.poolId;
    this.engineId = asked.engineId;
    this.decisionId = asked.decisionId;
    this.sort = asked.sort;
    this.table = asked.table;
    this.queue = asked.queue;
    this.range = asked.range;
    /** @type {End} */
    this.end = asked.end;
    this.folds = asked.folds;
  }

  /** Compute the rows again, after a keyframe or a change of scope or sort. */
  replan() {
    if (this.state.index === null) {
      this.plan = [];
      return;
    }
    if (this.poolId && this.state.poolRow(this.poolId) < 0 && this.state.pools.length) this.poolId = '';
    this.plan = rowPlan(this.state, this);
    if (this.cursor && this.state.engineRow(this.cursor.engineId) < 0) this.cursor = null;
    this.hover = null;
  }

  /** Target share on time of the focused pool. */
  get target() {
    return this.targets[this.state.pools[this.focus]?.id] ?? this.targets[''];
  }

  /** Rows in the order shown, pool after pool: engines and bands. */
  get rows() {
    return this.plan.flatMap((group) => group.rows);
  }

  /** Engine rows in the order shown. */
  get engineRows() {
    return this.rows.filter((row) => row < this.state.engines.length);
  }

  /** Whether the view is fixed, in the past or paused. */
  get fixed() {
    return Boolean(this.end || this.pausedAt);
  }

  /** All engine rows in scope, shown or folded away. */
  get scopeRows() {
    const ids = new Set(this.pools.map((pool) => this.state.pools[pool].id));
    return this.state.engines.flatMap((engine, row) => (ids.has(engine.pool) ? [row] : []));
  }

  /** Row of the engine in the drawer; −1 when it is closed. */
  get engineRow() {
    return this.state.engineRow(this.engineId);
  }

  /** Pool rows in scope. */
  get pools() {
    return this.plan.map((group) => group.pool);
  }

  /** The pool whose lines are blue: the open engine's, else that of the verdict, else the first with requests. */
  get focus() {
    const { engines, verdict } = this.state;
    const engine = engines[this.engineRow] ?? engines[this.state.engineRow(verdict.engine_id)];
    const asked = this.engineRow < 0 && verdict.late_pool_id ? verdict.late_pool_id : (engine?.pool ?? '');
    const pool = this.state.poolRow(asked);
    if (this.engineRow >= 0 || this.pools.includes(pool)) return pool;
    return this.pools.find((row) => this.state.poolNow('requests_per_s', row) > 0) ?? this.pools[0] ?? -1;
  }

  /** The cell of the readout: {row, index}; null for none, or if it left the window. */
  get cell() {
    const cell = this.hover ?? this.cursor;
    if (!cell) return null;
    const row = cell.engineId ? this.state.engineRow(cell.engineId) : cell.row;
    if (row < 0 || cell.index < this.state.first || cell.index > this.state.last) return null;
    return { ...cell, row };
  }

  /**
   * Return a cell for the cursor: engines by id, so that a new topology does not move it; bands by row.
   * @param {number} row
   * @param {number} index
   */
  cellOf(row, index) {
    return { row, index, engineId: this.state.engines[row]?.id ?? '' };
  }

  /** @param {string} poolId */
  setScope(poolId) {
    this.poolId = poolId;
    this.#remember('rows');
  }

  /** @param {string} sort */
  setSort(sort) {
    this.sort = sort;
    this.#remember('rows');
  }

  /** @param {boolean} table */
  setTable(table) {
    this.table = table;
    this.#remember('table');
  }

  /**
   * Show the rows of the queue ('open'), or fold them away ('folded').
   * @param {string} queue
   */
  setQueue(queue) {
    this.queue = queue;
    this.#remember('queue');
  }

  /**
   * Select a range: '5m', '1h' or '24h', end '' (now) or unix seconds.
   * @param {Range} range
   * @param {End} end
   */
  setRange(range, end) {
    Object.assign(this, { range, end });
    this.#remember('range');
  }

  /**
   * Fold or unfold a pool ('pool id') or a band of one ('pool id.band').
   * @param {string} key
   */
  toggleFold(key) {
    if (!this.folds.delete(key)) this.folds.add(key);
    this.#remember('rows');
  }

  /** @param {string} engineId */
  openEngine(engineId) {
    Object.assign(this, { engineId, decisionId: '' });
    this.#remember('engine');
  }

  /**
   * Open a decision over its engine in a new history entry: Back closes it.
   * @param {string} decisionId
   */
  openDecision(decisionId) {
    this.decisionId = decisionId;
    history.pushState({ decision: true }, '', this.#address);
    this.changed('decision');
  }

  closeDecision() {
    if (history.state?.decision) {
      history.back();
      return;
    }
    this.decisionId = '';
    this.#remember('decision');
  }

  /** Show the state of the address, after a history navigation. */
  comeBack() {
    const asked = readUrl(location.search);
    if (asked.end === this.pausedAt) asked.end = '';
    const elsewhere = asked.range !== this.range || asked.end !== this.end;
    Object.assign(this, asked);
    for (const what of [...(elsewhere ? ['range'] : []), 'rows', 'table', 'queue', 'engine']) this.changed(what);
  }

  /** @param {Cell | null} cell */
  setHover(cell) {
    this.hover = cell;
    this.changed('cursor');
  }

  /** @param {Cell | null} cell */
  setCursor(cell) {
    this.cursor = cell;
    this.changed('cursor');
  }

  /**
   * Move the cursor by rows and columns; the first move puts it on the open engine's (or first) newest cell.
   * @param {number} byRows
   * @param {number} byColumns
   */
  moveCursor(byRows, byColumns) {
    const { state, rows } = this;
    if (!rows.length || state.index === null) return;
    const cell = this.cell;
    const position = rows.indexOf(cell?.row ?? this.engineRow);
    const from = Math.max(0, position);
    const next = cell ? Math.min(rows.length - 1, Math.max(0, from + byRows)) : from;
    const index = cell ? Math.min(state.index, Math.max(state.first, cell.index + byColumns)) : state.index;
    this.hover = null;
    this.setCursor(this.cellOf(rows[next], index));
  }

  /** Open the engine under the cursor, or open and close the band. */
  enter() {
    const { cell, state } = this;
    if (!cell) return;
    if (cell.engineId) this.openEngine(cell.engineId);
    else {
      const { pool, band } = state.bands.factsOf(cell.row);
      this.toggleFold(`${state.pools[pool].id}.${band}`);
    }
  }

  /**
   * Open the next or previous engine in the order shown.
   * @param {number} by
   */
  stepEngine(by) {
    const rows = this.engineRows;
    if (!rows.length) return;
    const position = rows.indexOf(this.engineRow);
    const next = position < 0 ? 0 : (position + by + rows.length) % rows.length;
    this.openEngine(this.state.engines[rows[next]].id);
  }

  /** Write the state into the address. */
  remember() {
    history.replaceState(history.state, '', this.#address);
  }

  /** A paused view is identified by its end. */
  get #address() {
    return location.pathname + writeUrl({ ...this, end: this.end || this.pausedAt });
  }

  /** @param {string} what */
  #remember(what) {
    this.remember();
    this.changed(what);
  }
}
