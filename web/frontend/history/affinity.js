/* Entry of a pool's Affinity page: keeps it fresh, changes pictures in place, and listens to its keys.
   The page can be read and every state of it reached without this script. */

import { byId, closest, find, findAll, isWithin, required } from '../shell/element.js';
import { morph } from '../shell/morph.js';

const EVERY_MS = 2000;
const root = byId('affinity');
const words = required(document, '[data-refreshed]');
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;
let lost = 0;

async function look() {
  clearTimeout(timer);
  const asked = root.dataset.refresh ?? '';
  if (!document.hidden) {
    try {
      const answer = await fetch(asked, { redirect: 'manual' });
      // Whoever is signed out is sent to the login, which is no part of this page.
      if (answer.type === 'opaqueredirect') return location.reload();
      if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
      const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').body;
      // Somebody may have asked for another state meanwhile.
      if (asked === root.dataset.refresh) show(fresh);
      lost = 0;
      words.textContent = 'Live';
    } catch {
      lost ||= performance.now();
      words.textContent = `Reconnecting, ${Math.round((performance.now() - lost) / 1000)}\u202fs`;
    }
    root.classList.toggle('lost', Boolean(lost));
  }
  timer = setTimeout(look, EVERY_MS);
  return undefined;
}

/** @param {HTMLElement} fresh */
function show(fresh) {
  // Tables that were opened stay open; the server does not know of them.
  for (const twin of findAll(root, 'details[id]', HTMLDetailsElement)) {
    const wanted = find(fresh, `#${twin.id}`, HTMLDetailsElement);
    if (wanted) wanted.open = twin.open;
  }
  morph(root, fresh);
}

/** @param {string} address */
function visit(address) {
  const [path, query = ''] = address.split('?');
  root.dataset.refresh = `${path}?${query}${query ? '&' : ''}fragment=1`;
  history.replaceState(null, '', address);
  look();
}

const twins = () => findAll(root, 'details.affinity-twin', HTMLDetailsElement);
/** @type {Record<string, () => void>} */
const ACTIONS = {
  t: () => {
    const open = twins().some((twin) => !twin.open);
    for (const twin of twins()) twin.open = open;
  },
  Escape: () => find(root, '[data-clear]')?.click(),
  1: () => find(root, '[data-window="1"]')?.click(),
  2: () => find(root, '[data-window="2"]')?.click(),
  3: () => find(root, '[data-window="3"]')?.click(),
};

root.addEventListener('click', (event) => {
  // Links inside pictures are SVG's.
  const link = closest(event, 'a[data-in-page]', Element);
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  visit(link.getAttribute('href') ?? '');
});
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector('dialog[open]')) return;
  if (isWithin(event, 'input, textarea, select')) return;
  const action = ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
timer = setTimeout(look, EVERY_MS);
