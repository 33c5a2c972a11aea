/* Entry of Decisions and of one decision. Both work without it. */

import { byId, closest, find, findAll, isWithin, required } from '../shell/element.js';
import { onKeys } from '../shell/keys.js';
import { startBrush } from './brush.js';
import { Tap } from './tap.js';

const page = find(document, '#decisions');
const one = find(document, '#decision');
const strip = find(document, '#decision-strip');
const tap = page?.dataset.tap && document.getElementById('decision-rows') ? new Tap(page) : null;

if (strip) startBrush(strip, byId('decision-filter', HTMLFormElement));
find(document, '.ledger-problem')?.focus();

/** @param {boolean} open */
function showTable(open) {
  const twin = find(document, '.decision-strip-twin');
  if (!twin) return;
  twin.hidden = !open;
  required(document, '.decision-strip-picture', SVGElement).classList.toggle('hidden', open);
  byId('strip-table').setAttribute('aria-pressed', String(open));
}

document
  .getElementById('strip-table')
  ?.addEventListener('click', () => showTable(Boolean(required(document, '.decision-strip-twin').hidden)));
if (tap) {
  tap.onStrip = (open) => {
    if (open) showTable(true);
  };
}

/**
 * @param {string} text
 * @param {Element | null} from
 */
async function copy(text, from) {
  await navigator.clipboard.writeText(text);
  const said = document.querySelector('[data-copied]');
  if (said) said.textContent = 'Copied';
  from?.classList.add('copied');
}

async function copyJson() {
  if (!one?.dataset.json) return;
  const answer = await fetch(one.dataset.json);
  if (answer.ok) await copy(await answer.text(), find(document, '[data-copy-json]'));
}

/** @param {number} by */
function step(by) {
  if (one) {
    const address = by > 0 ? one.dataset.older : one.dataset.newer;
    if (address) location.assign(address);
    return;
  }
  const links = findAll(document, '[data-row] .ledger-open');
  const at = links.findIndex((link) => link === document.activeElement);
  links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + by))]?.focus();
}

onKeys({
  j: () => step(1),
  k: () => step(-1),
  t: () => find(document, '#strip-table')?.click(),
  ' ': () => tap?.hold(),
  c: () => one && copyJson(),
  x: () => one && find(one, '[data-whatif]')?.click(),
});
document.addEventListener('click', (event) => {
  const button = closest(event, '[data-copy-text], [data-copy-json]');
  if (button?.dataset.copyText) copy(button.dataset.copyText, button);
  else if (button) copyJson();
  const row = closest(event, '[data-row]');
  if (row && !isWithin(event, 'a, button') && !getSelection()?.toString()) find(row, '.ledger-open')?.click();
});
