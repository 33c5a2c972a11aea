/* Menus are <details>: they open without scripts; this one closes them on Escape and on a click outside. */

import { findAll, required } from './element.js';

export function startMenus() {
  const open = () => findAll(document, 'details.menu[open]', HTMLDetailsElement);
  document.addEventListener('click', (event) => {
    for (const menu of open()) if (!(event.target instanceof Node && menu.contains(event.target))) menu.open = false;
  });
  document.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape') return;
    for (const menu of open()) {
      menu.open = false;
      required(menu, 'summary').focus();
      event.stopImmediatePropagation();
    }
  });
}
