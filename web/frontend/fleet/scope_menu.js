/* The breadcrumb of the top bar, which also selects the scope. */

import { count } from '../shell/format.js';
import { byId, make, required, setText } from '../shell/element.js';
/** @import { View } from './view.js' */

export class ScopeMenu {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.menu = byId('scope-menu', HTMLDetailsElement);
  }

  /** Show the scope and its choices. */
  update() {
    const { state, poolId } = this.view;
    const regions = [...new Set(state.pools.map((pool) => pool.region))];
    const scoped = state.pools[state.poolRow(poolId)];
    setText(
      byId('scope-region'),
      scoped?.region ?? (regions.length === 1 ? regions[0] : regions.length ? 'All regions' : 'Fleet'),
    );
    setText(byId('scope-pool'), scoped?.name ?? 'All pools');
    const there = state.engines.filter((engine) => engine.state !== 'removed');
    const choices = [
      ['', 'All pools', count(there.length, 'engine')],
      ...state.pools.map((pool) => [
        pool.id,
        pool.name,
        count(there.filter((engine) => engine.pool === pool.id).length, 'engine'),
      ]),
    ];
    byId('scope-choices').replaceChildren(...choices.map((choice) => this.#choice(choice)));
  }

  /** @param {string[]} choice */
  #choice([poolId, name, remark]) {
    const item = make('button', 'menu-item', name, make('span', '', remark));
    item.type = 'button';
    if (poolId === this.view.poolId) item.setAttribute('aria-current', 'true');
    item.addEventListener('click', () => {
      this.menu.open = false;
      required(this.menu, 'summary').focus();
      this.view.setScope(poolId);
    });
    return item;
  }
}
