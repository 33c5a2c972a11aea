/* Pools and engines: names at the left, heat in the middle, newest values at the right. */

import { count, seconds, short, whole } from '../../shell/format.js';
import { byId, changeShape, icon, make, setText, stateShape } from '../../shell/element.js';
import { requestsAddress } from '../fleet_figures.js';
import { roleMark } from './role_mark.js';
import { spanWords } from '../../shell/span_words.js';
/** @import { Heat } from '../../charts/heat.js' */
/** @import { Unbound } from '../../charts/unbound.js' */
/** @import { FleetState } from '../../live/fleet_state.js' */
/** @import { EngineFacts } from '../../live/frame_types.js' */
/** @import { View } from '../view.js' */
/** @import { Layout } from './panel_layout.js' */
/** @import { RowGroup } from './row_plan.js' */

/**
 * Return the label of an engine that takes no work, '' otherwise.
 * @param {string} state
 * @param {number} tokens
 * @param {number} requests
 */
export function rowWords(state, tokens, requests) {
  if (['lost', 'unknown', 'removed'].includes(state)) return state;
  if (tokens > 0) return '';
  if (state === 'draining') return requests > 0 ? 'draining' : 'drained';
  if (['maintenance', 'starting', 'quarantined'].includes(state)) return state;
  return requests > 0 ? '' : 'idle';
}

/**
 * Return the right end of a row: a label, or the figures of the newest cell, which holds the peak of its
 * interval.
 * @param {FleetState} state
 * @param {number} row
 */
export function rowFigures(state, row) {
  const engine = state.engines[row];
  const tokens = state.engineAt('tokens', row, state.index);
  const words = engine ? rowWords(engine.state, tokens, state.nowOf('running', row) + state.nowOf('bound', row)) : '';
  if (words) return { words, tokens: '', seconds: '' };
  return { words, tokens: short(tokens), seconds: seconds(state.engineAt('seconds', row, state.index)) };
}

/** @typedef {{ root: HTMLElement, shape?: SVGElement }} RowName */
/** @typedef {{ root: HTMLElement, tokens: HTMLElement, seconds: HTMLElement }} RowValue */

/**
 * The elements of one pool.
 * @typedef {object} PoolGroup
 * @property {HTMLElement} root
 * @property {number} pool
 * @property {number[]} rows
 * @property {Heat} heat
 * @property {Unbound} strip
 * @property {HTMLElement} unbound
 * @property {RowName[]} names
 * @property {RowValue[]} values
 */

export class Rows {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.root = byId('rows');
    /** @type {PoolGroup[]} */
    this.groups = [];
    this.key = '';
  }

  /** Build the rows of the view's plan; unchanged rows keep their elements. */
  build() {
    const { view } = this;
    const { state } = view;
    const key = JSON.stringify([
      state.engines.map((engine) => [engine.id, engine.name, engine.role, engine.removed]),
      view.plan.map((group) => [state.pools[group.pool].id, state.pools[group.pool].name, group]),
    ]);
    if (key === this.key) return;
    this.key = key;
    this.groups = view.plan.map((group) => this.#group(group));
    this.root.replaceChildren(...this.groups.map((group) => group.root));
  }

  /** @param {Layout} layout */
  update(layout) {
    const { view } = this;
    const { state } = view;
    this.groups.forEach(({ pool, rows, heat, strip, unbound, names, values }) => {
      strip.show(state, pool);
      heat.show(state, rows, state.pools[pool].ttft_slo_s, layout.pitch, layout.narrow);
      const waiting = state.poolNow('unbound', pool);
      setText(
        unbound,
        state.pools[pool].observes ? 'observe-only' : `${Number.isNaN(waiting) ? '—' : whole(waiting)} unbound`,
      );
      rows.forEach((row, index) => this.#row(row, names[index], values[index]));
      const summary = this.#summary(pool, rows);
      if (heat.getAttribute('aria-label') !== summary) heat.setAttribute('aria-label', summary);
    });
  }

  /**
   * @param {number} row
   * @param {RowName} name
   * @param {RowValue} value
   */
  #row(row, name, value) {
    const { state, engineId } = this.view;
    const engine = state.engines[row];
    const figures = rowFigures(state, row);
    if (engine && name.shape) changeShape(name.shape, engine.state);
    for (const part of [name.root, value.root])
      part.classList.toggle('selected', engine !== undefined && engine.id === engineId);
    value.root.classList.toggle('wordy', Boolean(figures.words));
    setText(value.tokens, figures.words || figures.tokens);
    setText(value.seconds, figures.seconds);
  }

  /**
   * @param {RowGroup} group
   * @returns {PoolGroup}
   */
  #group({ pool, rows, total, folded, foldable }) {
    const { state } = this.view;
    const strip = document.createElement('hw-unbound');
    const heat = document.createElement('hw-heat');
    heat.tabIndex = 0;
    heat.setAttribute('role', 'img');
    heat.dataset.pool = state.pools[pool].id;
    const unbound = make('a', 'pool-unbound');
    unbound.href = requestsAddress('state=running', { poolId: state.pools[pool].id, since: 0, until: 0 });
    if (state.pools[pool].observes) unbound.title = 'Observe-only: another router routes its requests.';
    const names = rows.map((row) => (row < state.engines.length ? this.#name(state.engines[row]) : this.#band(row)));
    const values = rows.map(() => {
      const [tokens, wait] = [make('span'), make('i')];
      return { root: make('div', 'row-value', tokens, wait), tokens, seconds: wait };
    });
    const root = make(
      'div',
      'pool',
      this.#poolName(pool, { total, folded, foldable }),
      strip,
      unbound,
      make('div', 'row-names', ...names.map((name) => name.root)),
      heat,
      make('div', 'row-values', ...values.map((value) => value.root)),
    );
    this.#follow(heat, rows);
    return { root, pool, rows, heat, strip, unbound, names, values };
  }

  /**
   * The pool's name; in a large fleet a button that folds its engines into bands, and back.
   * @param {number} pool
   * @param {{ total: number, folded: boolean, foldable: boolean }} group
   */
  #poolName(pool, { total, folded, foldable }) {
    const { id, name, served_model: model } = this.view.state.pools[pool];
    const words = make('span', 'pool-name', name);
    words.title = `${model}, ${count(total, 'engine')}`;
    if (!foldable) return words;
    const button = make(
      'button',
      'pool-name pool-fold',
      icon('i-caret', 'small'),
      make('span', '', name),
      make('i', '', whole(total)),
    );
    button.type = 'button';
    button.title = words.title;
    button.setAttribute('aria-expanded', String(!folded));
    button.addEventListener('click', () => this.view.toggleFold(id));
    return button;
  }

  /**
   * @param {EngineFacts} engine
   * @returns {RowName}
   */
  #name(engine) {
    const shape = stateShape(engine.state);
    shape.dataset.state = engine.state;
    const mark = roleMark(engine);
    const root = make(
      'button',
      'row-name',
      shape,
      make('span', '', engine.name),
      ...(mark ? [make('b', 'row-role', mark)] : []),
    );
    root.type = 'button';
    root.title = [engine.name, mark && engine.role, engine.removed && 'removed from the fleet since']
      .filter(Boolean)
      .join(', ');
    root.classList.toggle('removed', Boolean(engine.removed));
    root.addEventListener('click', () => this.view.openEngine(engine.id === this.view.engineId ? '' : engine.id));
    return { root, shape };
  }

  /**
   * @param {number} row
   * @returns {RowName}
   */
  #band(row) {
    const { state, folds } = this.view;
    const { pool, band, name } = state.bands.factsOf(row);
    const key = `${state.pools[pool].id}.${band}`;
    const root = make('button', 'row-name row-band', icon('i-caret', 'small'), make('span', '', name));
    root.type = 'button';
    root.title = `${name} of the engines of ${state.pools[pool].name}; open to list the nearest engines`;
    root.setAttribute('aria-expanded', String(folds.has(key)));
    root.addEventListener('click', () => this.view.toggleFold(key));
    return { root };
  }

  /**
   * Select cells with the pointer.
   * @param {Heat} heat
   * @param {number[]} rows
   */
  #follow(heat, rows) {
    const { view } = this;
    /** @param {PointerEvent | MouseEvent} event */
    const cellAt = (event) => {
      const index = Math.min(
        rows.length - 1,
        Math.max(0, Math.floor((event.offsetY / heat.clientHeight) * rows.length)),
      );
      const column = Math.min(
        view.state.columns - 1,
        Math.max(0, Math.floor((event.offsetX / heat.clientWidth) * view.state.columns)),
      );
      return view.cellOf(rows[index], view.state.first + column);
    };
    heat.addEventListener('pointermove', (event) => view.state.index !== null && view.setHover(cellAt(event)));
    heat.addEventListener('pointerleave', () => view.setHover(null));
    heat.addEventListener('click', (event) => {
      if (view.state.index === null) return;
      view.cursor = cellAt(event);
      view.hover = null;
      view.enter();
    });
  }

  /**
   * @param {number} pool
   * @param {number[]} rows
   */
  #summary(pool, rows) {
    const { state } = this.view;
    const engines = rows.filter((row) => row < state.engines.length);
    const notable = engines
      .filter((row) => state.engines[row].state !== 'serving')
      .map((row) => `${state.engines[row].name} is ${state.engines[row].state}`);
    const shown =
      engines.length === rows.length
        ? count(rows.length, 'engine')
        : `${count(rows.length, 'row')}, quantiles over the engines,`;
    const over = `${state.pools[pool].name} over ${spanWords(state.spanS)}`;
    return `In-flight work of ${shown} of ${over}. ${notable.join(', ') || 'All serve'}.`;
  }
}
