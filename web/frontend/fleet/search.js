/* Search over engines in the top bar: `/` focuses it, arrows select, Enter opens the drawer. */

import { NARROW, short } from '../shell/format.js';
import { byId, closest, findAll, make, stateShape } from '../shell/element.js';
/** @import { EngineFacts } from '../live/frame_types.js' */
/** @import { View } from './view.js' */

const MOST = 8;

/**
 * Return engine rows whose name or id contains the words: prefix matches first, then others, then by id.
 * @param {EngineFacts[]} engines
 * @param {string} words
 */
export function findEngines(engines, words) {
  const wanted = words.trim().toLowerCase();
  if (!wanted) return [];
  /** @param {EngineFacts} engine */
  const rank = (engine) => {
    const name = engine.name.toLowerCase();
    if (name === wanted) return 0;
    if (name.startsWith(wanted)) return 1;
    if (name.includes(wanted)) return 2;
    return engine.id.toLowerCase().includes(wanted) ? 3 : 4;
  };
  return engines
    .map((engine, row) => [rank(engine), row])
    .filter(([score]) => score < 4)
    .sort((one, other) => one[0] - other[0] || one[1] - other[1])
    .map(([, row]) => row);
}

/**
 * Return the decision id (header x-headway-decision) in the words; '' for none.
 * @param {string} words
 */
export const decisionId = (words) =>
  /^[0-9a-f]{8}-[0-9a-f-]{4,27}$/.test(words.trim().toLowerCase()) ? words.trim().toLowerCase() : '';

export class EngineSearch {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.field = byId('search', HTMLInputElement);
    this.list = byId('search-list');
    this.chosen = 0;
    /** @type {number[]} Engine rows that match, best first. */
    this.matches = [];
    this.field.addEventListener('input', () => this.#show());
    this.field.addEventListener('focus', () => this.#show());
    this.field.addEventListener('blur', () => this.#close());
    this.field.addEventListener('keydown', (event) => this.#key(event));
    this.list.addEventListener('pointerdown', (event) => {
      event.preventDefault();
      const item = closest(event, '[role=option]');
      if (item) this.#open(Number(item.dataset.row));
    });
  }

  focus() {
    this.field.focus();
    this.field.select();
  }

  #show() {
    const { engines } = this.view.state;
    this.matches = findEngines(engines, this.field.value);
    this.chosen = 0;
    const items = this.matches.slice(0, MOST).map((row) => this.#item(row));
    const rest = this.matches.length - items.length;
    const words = this.field.value.trim();
    if (words && !items.length && decisionId(words)) items.push(make('p', 'search-none', 'Enter opens this decision.'));
    else if (words && !items.length) items.push(make('p', 'search-none', `No engine matches “${words}”.`));
    if (rest > 0) items.push(make('p', 'search-none', `${rest} more; refine the search`));
    this.list.replaceChildren(...items);
    this.list.hidden = !items.length;
    this.field.setAttribute('aria-expanded', String(!this.list.hidden));
    this.#mark();
  }

  /** @param {number} row */
  #item(row) {
    const { state } = this.view;
    const engine = state.engines[row];
    const item = make(
      'div',
      'search-item',
      stateShape(engine.state),
      make('b', '', engine.name),
      make('span', '', state.pools[state.poolRow(engine.pool)]?.name ?? ''),
      make('i', '', `${short(state.nowOf('tokens', row))}${NARROW}tok`),
    );
    item.setAttribute('role', 'option');
    item.id = `search-${row}`;
    item.dataset.row = String(row);
    return item;
  }

  #mark() {
    const options = findAll(this.list, '[role=option]');
    options.forEach((item, index) => item.setAttribute('aria-selected', String(index === this.chosen)));
    if (options[this.chosen]) this.field.setAttribute('aria-activedescendant', options[this.chosen].id);
    else this.field.removeAttribute('aria-activedescendant');
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const count = this.list.querySelectorAll('[role=option]').length;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      this.chosen = count ? (this.chosen + (event.key === 'ArrowDown' ? 1 : count - 1)) % count : 0;
      this.#mark();
    } else if (event.key === 'Enter' && count) this.#open(this.matches[this.chosen]);
    else if (event.key === 'Enter' && decisionId(this.field.value))
      location.assign(`/requests?id=${decisionId(this.field.value)}`);
    else if (event.key === 'Escape') {
      event.stopPropagation();
      this.field.value = '';
      this.field.blur();
    }
  }

  /** @param {number} row */
  #open(row) {
    this.view.openEngine(this.view.state.engines[row].id);
    this.field.value = '';
    this.field.blur();
  }

  #close() {
    this.list.hidden = true;
    this.field.setAttribute('aria-expanded', 'false');
  }
}
