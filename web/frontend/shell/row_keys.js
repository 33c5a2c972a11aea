/* Rows by keyboard and mouse: J and K, Enter, Esc, /, and keys that pages add by attributes. */

import { closest, find, findAll, isWithin } from './element.js';
import { onKeys } from './keys.js';

/**
 * Return the next row, within the list; `at` -1 is none yet.
 * @param {number} at
 * @param {number} by
 * @param {number} count
 */
export function stepped(at, by, count) {
  if (count === 0) return -1;
  if (at < 0) return by > 0 ? 0 : count - 1;
  return Math.min(count - 1, Math.max(0, at + by));
}

/** @param {number} by */
function step(by) {
  const rows = findAll(document, '[data-row]');
  const focused = rows.findIndex((row) => row.contains(document.activeElement));
  const selected = rows.findIndex((row) => row.classList.contains('selected'));
  const next = rows[stepped(focused < 0 ? selected : focused, by, rows.length)];
  const link = next && find(next, '.ledger-open', HTMLAnchorElement);
  if (!link) return;
  if (selected >= 0) location.assign(link.href);
  else link.focus();
}

export function startRowKeys() {
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') closest(event, 'input, select')?.blur();
  });
  onKeys({
    j: () => step(1),
    k: () => step(-1),
    f: () => find(document, '[data-failed]')?.click(),
    c: () => find(document, '.drawer [data-copy]')?.click(),
    Escape: () => find(document, '.drawer [data-close]')?.click(),
  });
  document.addEventListener('click', (event) => {
    const row = closest(event, '[data-row]');
    if (!row || isWithin(event, 'a, button, form') || getSelection()?.toString()) return;
    find(row, '.ledger-open')?.click();
  });
}
