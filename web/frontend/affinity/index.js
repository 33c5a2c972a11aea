/* Entry of a pool's Affinity page: keeps it fresh, changes pictures in place, and listens to its keys.
   The page can be read and every state of it reached without this script. */

import { morph } from '../jobs/morph.js';

const EVERY_MS = 2000;
const root = document.getElementById('affinity');
const words = document.querySelector('[data-refreshed]');
let timer = 0;
let lost = 0;

async function look() {
  clearTimeout(timer);
  const asked = root.dataset.refresh;
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

function show(fresh) {
  // Tables that were opened stay open; the server does not know of them.
  for (const twin of root.querySelectorAll('details[id]')) {
    const wanted = fresh.querySelector(`#${twin.id}`);
    if (wanted) wanted.open = twin.open;
  }
  morph(root, fresh);
}

function visit(address) {
  const [path, query = ''] = address.split('?');
  root.dataset.refresh = `${path}?${query}${query ? '&' : ''}fragment=1`;
  history.replaceState(null, '', address);
  look();
}

const twins = () => [...root.querySelectorAll('details.affinity-twin')];
const ACTIONS = {
  t: () => {
    const open = twins().some((twin) => !twin.open);
    for (const twin of twins()) twin.open = open;
  },
  Escape: () => root.querySelector('[data-clear]')?.click(),
  1: () => root.querySelector('[data-window="1"]')?.click(),
  2: () => root.querySelector('[data-window="2"]')?.click(),
  3: () => root.querySelector('[data-window="3"]')?.click(),
};

root.addEventListener('click', (event) => {
  const link = event.target.closest('a[data-in-page]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  visit(link.getAttribute('href'));
});
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector('dialog[open]')) return;
  if (event.target.closest('input, textarea, select')) return;
  const action = ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
timer = setTimeout(look, EVERY_MS);
