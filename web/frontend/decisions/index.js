/* Entry of Decisions and of one decision. Both can be read without it. */

import { startBrush } from './brush.js';
import { Tap } from './tap.js';

const page = document.getElementById('decisions');
const one = document.getElementById('decision');
const strip = document.getElementById('decision-strip');
const tap = page?.dataset.tap && document.getElementById('decision-rows') ? new Tap(page) : null;

if (strip) startBrush(strip, document.getElementById('decision-filter'));
document.querySelector('.ledger-problem')?.focus();

function showTable(open) {
  const twin = document.querySelector('.decision-strip-twin');
  if (!twin) return;
  twin.hidden = !open;
  document.querySelector('.decision-strip-picture').classList.toggle('hidden', open);
  document.getElementById('strip-table').setAttribute('aria-pressed', String(open));
}

document.getElementById('strip-table')?.addEventListener('click', () => showTable(document.querySelector('.decision-strip-twin').hidden));
if (tap) tap.onStrip = (open) => open && showTable(true);

async function copy(text, from) {
  await navigator.clipboard.writeText(text);
  const said = document.querySelector('[data-copied]');
  if (said) said.textContent = 'Copied';
  from?.classList.add('copied');
}

async function copyJson() {
  const answer = await fetch(one.dataset.json);
  if (answer.ok) await copy(await answer.text(), document.querySelector('[data-copy-json]'));
}

function step(by) {
  if (one) {
    const address = by > 0 ? one.dataset.older : one.dataset.newer;
    if (address) location.assign(address);
    return;
  }
  const links = [...document.querySelectorAll('[data-row] .ledger-open')];
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

const ACTIONS = {
  j: () => step(1),
  k: () => step(-1),
  '/': () => document.querySelector('[data-find]')?.focus(),
  t: () => document.getElementById('strip-table')?.click(),
  ' ': () => tap?.hold(),
  c: () => one && copyJson(),
  x: () => one?.querySelector('[data-whatif]')?.click(),
};

document.addEventListener('keydown', (event) => {
  const { target, key } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || document.querySelector('dialog[open]')) return;
  if (target.closest('input, textarea, select') || (key === ' ' && target.closest('button, a, summary'))) return;
  const action = ACTIONS[key.length === 1 ? key.toLowerCase() : key];
  if (!action) return;
  event.preventDefault();
  action();
});
document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-copy-text], [data-copy-json]');
  if (button?.dataset.copyText) copy(button.dataset.copyText, button);
  else if (button) copyJson();
  const row = event.target.closest('[data-row]');
  if (row && !event.target.closest('a, button') && !getSelection()?.toString()) row.querySelector('.ledger-open')?.click();
});
