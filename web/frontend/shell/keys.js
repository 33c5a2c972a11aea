/* Keys of every page: the list of keys, and navigation. */

import { byId, find, findAll, isWithin } from './element.js';

const GO_MS = 1500;

/**
 * Return whether a key press belongs to the focused control, not to the page.
 * @param {KeyboardEvent} event
 */
export function keyIsTaken(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return true;
  if (isWithin(event, 'input, textarea, select, [contenteditable]')) return true;
  return [' ', 'Enter'].includes(event.key) && isWithin(event, 'button, a, summary');
}

/**
 * Call the action of a key; letters are lower case.
 * @param {Record<string, ((event: KeyboardEvent) => void) | undefined>} actions
 */
export function onKeys(actions) {
  document.addEventListener('keydown', (event) => {
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || keyIsTaken(event) || (event.repeat && !/^Arrow|^[[\]]$/.test(event.key))) return;
    event.preventDefault();
    action(event);
  });
}

/** `?` and the button in the bottom line open the list of keys; `G` and a letter open a page. */
export function listenToShellKeys() {
  const dialog = find(document, '#keys-dialog', HTMLDialogElement);
  if (dialog) byId('keys-button').addEventListener('click', () => dialog.showModal());
  /** @type {Record<string, string>} Address by key, as the navigation states them. */
  const pages = {};
  for (const item of findAll(document, '.nav a[data-key]', HTMLAnchorElement)) pages[item.dataset.key ?? ''] = item.href;
  let goUntil = 0;
  document.addEventListener('keydown', (event) => {
    if (keyIsTaken(event)) return;
    const key = event.key.toLowerCase();
    if (performance.now() < goUntil && pages[key]) {
      event.stopImmediatePropagation();
      location.assign(pages[key]);
    }
    goUntil = key === 'g' ? performance.now() + GO_MS : 0;
    if (key === '?' && dialog) dialog.showModal();
  });
}
