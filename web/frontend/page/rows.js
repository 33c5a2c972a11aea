/* Pools and engines: names at the left, heat in the middle, newest values at the right. */

import { count, seconds, short, whole } from '../figures/format.js';
import { byId, changeShape, make, setText, stateShape } from './element.js';

/** Words in place of figures for an engine that takes no work, '' otherwise. */
export function rowWords(state, tokens, requests) {
  if (state === 'lost' || state === 'unknown') return state;
  if (tokens > 0) return '';
  if (state === 'draining') return requests > 0 ? 'draining' : 'drained';
  if (state === 'maintenance' || state === 'starting') return state;
  return requests > 0 ? '' : 'idle';
}

export class Rows {
  constructor(view) {
    this.view = view;
    this.root = byId('rows');
    this.groups = [];
  }

  /** Build the rows of the view's plan. */
  build() {
    this.groups = this.view.plan.map((group) => this.#group(group));
    this.root.replaceChildren(...this.groups.map((group) => group.root));
  }

  update(layout) {
    const { view } = this;
    const { state } = view;
    this.groups.forEach(({ pool, rows, heat, strip, unbound, names, values }) => {
      strip.show(state, pool);
      heat.show(state, rows, state.pools[pool].ttft_slo_s, layout.pitch);
      setText(unbound, `${whole(state.poolAt('unbound', pool, state.index))} unbound`);
      rows.forEach((row, place) => this.#row(row, names[place], values[place]));
      heat.setAttribute('aria-label', this.#summary(pool, rows));
    });
  }

  #row(row, name, value) {
    const { state, engineId } = this.view;
    const engine = state.engines[row];
    const tokens = state.nowOf('tokens', row);
    const words = rowWords(engine.state, tokens, state.nowOf('running', row) + state.nowOf('bound', row));
    changeShape(name.shape, engine.state);
    for (const part of [name.root, value.root]) part.classList.toggle('selected', engine.id === engineId);
    value.root.classList.toggle('wordy', Boolean(words));
    setText(value.tokens, words || short(tokens));
    setText(value.seconds, words ? '' : seconds(state.nowOf('seconds', row)));
  }

  #group({ pool, rows }) {
    const { state } = this.view;
    const strip = document.createElement('sy-unbound');
    const heat = document.createElement('sy-heat');
    heat.tabIndex = 0;
    heat.setAttribute('role', 'img');
    heat.dataset.pool = state.pools[pool].id;
    const unbound = make('span', 'pool-unbound');
    const names = rows.map((row) => this.#name(state.engines[row]));
    const values = rows.map(() => {
      const [tokens, wait] = [make('span'), make('i')];
      return { root: make('div', 'row-value', tokens, wait), tokens, seconds: wait };
    });
    const poolName = make('span', 'pool-name', state.pools[pool].name);
    poolName.title = state.pools[pool].served_model;
    const root = make('div', 'pool', poolName, strip, unbound,
      make('div', 'row-names', ...names.map((name) => name.root)), heat,
      make('div', 'row-values', ...values.map((value) => value.root)));
    this.#follow(heat, rows);
    return { root, pool, rows, heat, strip, unbound, names, values };
  }

  #name(engine) {
    const shape = stateShape(engine.state);
    shape.dataset.state = engine.state;
    const root = make('button', 'row-name', shape, make('span', '', engine.name));
    root.type = 'button';
    root.title = engine.name;
    root.addEventListener('click', () => this.view.openEngine(engine.id === this.view.engineId ? '' : engine.id));
    return { root, shape };
  }

  /** Let the pointer choose cells. */
  #follow(heat, rows) {
    const { view } = this;
    const cellAt = (event) => {
      const place = Math.min(rows.length - 1, Math.max(0, Math.floor((event.offsetY / heat.clientHeight) * rows.length)));
      const column = Math.min(view.state.columns - 1, Math.max(0, Math.floor((event.offsetX / heat.clientWidth) * view.state.columns)));
      return { engineId: view.state.engines[rows[place]].id, index: view.state.first + column };
    };
    heat.addEventListener('pointermove', (event) => view.state.index !== null && view.setHover(cellAt(event)));
    heat.addEventListener('pointerleave', () => view.setHover(null));
    heat.addEventListener('click', (event) => {
      if (view.state.index === null) return;
      const cell = cellAt(event);
      view.cursor = cell;
      view.openEngine(cell.engineId);
    });
  }

  #summary(pool, rows) {
    const { state } = this.view;
    const notable = rows.filter((row) => state.engines[row].state !== 'serving').map((row) => `${state.engines[row].name} is ${state.engines[row].state}`);
    return `Outstanding work of ${count(rows.length, 'engine')} of ${state.pools[pool].name} over five minutes. ${notable.join(', ') || 'All serve'}.`;
  }
}
