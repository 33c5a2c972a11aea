/* What the operator looks at: scope, sort, open engine, cursor. One object, one listener. */

import { readUrl, writeUrl } from './url_state.js';
import { rowPlan } from './row_plan.js';

/** Selections over a FleetState; each change calls `changed(what)`, what being 'rows', 'cursor', 'engine' or 'table'. */
export class View {
  constructor(state, changed) {
    this.state = state;
    this.changed = changed;
    this.cursor = null;
    this.hover = null;
    this.plan = [];
    Object.assign(this, readUrl(location.search));
  }

  /** Work out the rows anew, after a keyframe or a change of scope or sort. */
  replan() {
    if (this.poolId && this.state.poolRow(this.poolId) < 0) this.poolId = '';
    this.plan = rowPlan(this.state, this.poolId, this.sort);
    if (this.engineId && this.engineRow < 0) this.engineId = '';
    if (this.cursor && this.state.engineRow(this.cursor.engineId) < 0) this.cursor = null;
    this.hover = null;
  }

  /** Engine rows in the order shown, pool after pool. */
  get rows() {
    return this.plan.flatMap((group) => group.rows);
  }

  /** Row of the engine in the drawer; −1 when it is closed. */
  get engineRow() {
    return this.state.engineRow(this.engineId);
  }

  /** Pool rows in scope. */
  get pools() {
    return this.plan.map((group) => group.pool);
  }

  /** The pool whose lines are blue: the open engine's, else the first in scope. */
  get focus() {
    const engine = this.state.engines[this.engineRow];
    const pool = engine ? this.state.poolRow(engine.pool) : -1;
    return pool >= 0 ? pool : (this.pools[0] ?? -1);
  }

  /** The cell described in the readout: {row, index, engineId}, null for none; one that left the window counts as none. */
  get cell() {
    const cell = this.hover ?? this.cursor;
    const row = cell ? this.state.engineRow(cell.engineId) : -1;
    if (row < 0 || cell.index < this.state.first || cell.index > this.state.index) return null;
    return { ...cell, row };
  }

  setScope(poolId) {
    this.poolId = poolId;
    this.#remember('rows');
  }

  setSort(sort) {
    this.sort = sort;
    this.#remember('rows');
  }

  setTable(table) {
    this.table = table;
    this.#remember('table');
  }

  openEngine(engineId) {
    this.engineId = engineId;
    this.#remember('engine');
  }

  setHover(cell) {
    this.hover = cell;
    this.changed('cursor');
  }

  setCursor(cell) {
    this.cursor = cell;
    this.changed('cursor');
  }

  /** Move the cursor by rows and columns; the first move puts it on the open engine's (or first) newest cell. */
  moveCursor(byRows, byColumns) {
    const { state, rows } = this;
    if (!rows.length || state.index === null) return;
    const cell = this.cell;
    const place = rows.indexOf(cell?.row ?? this.engineRow);
    const from = Math.max(0, place);
    const next = cell ? Math.min(rows.length - 1, Math.max(0, from + byRows)) : from;
    const index = cell ? Math.min(state.index, Math.max(state.first, cell.index + byColumns)) : state.index;
    this.hover = null;
    this.setCursor({ engineId: state.engines[rows[next]].id, index });
  }

  /** Open the next or previous engine in the order shown. */
  stepEngine(by) {
    const { rows } = this;
    if (!rows.length) return;
    const place = rows.indexOf(this.engineRow);
    const next = place < 0 ? 0 : (place + by + rows.length) % rows.length;
    this.openEngine(this.state.engines[rows[next]].id);
  }

  #remember(what) {
    history.replaceState(null, '', location.pathname + writeUrl(this));
    this.changed(what);
  }
}
