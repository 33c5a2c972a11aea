/* Entry of a pool's Cache locality page: refreshes it, updates charts in place, and handles its keys.
   The page works without this script. */

import { byId, closest, find, findAll } from '../shell/element.js';
import { onKeys } from '../shell/keys.js';
import { startRefresh } from '../shell/refresh.js';

const root = byId('cache-locality');
const refresh = startRefresh(root);

/** @param {string} address */
function visit(address) {
  const [path, query = ''] = address.split('?');
  root.dataset.refresh = `${path}?${query}${query ? '&' : ''}fragment=1`;
  history.replaceState(null, '', address);
  refresh();
}

const twins = () => findAll(root, 'details.cache-locality-twin', HTMLDetailsElement);
root.addEventListener('click', (event) => {
  // Links inside charts are SVG elements.
  const link = closest(event, 'a[data-in-page]', Element);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  visit(link.getAttribute('href') ?? '');
});
onKeys({
  t: () => {
    const open = twins().some((twin) => !twin.open);
    for (const twin of twins()) twin.open = open;
  },
  Escape: () => find(root, '[data-clear]')?.click(),
  1: () => find(root, '[data-window="1"]')?.click(),
  2: () => find(root, '[data-window="2"]')?.click(),
  3: () => find(root, '[data-window="3"]')?.click(),
});
