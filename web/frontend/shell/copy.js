/* Buttons with data-copy put the text of the field they name on the clipboard, and confirm it. */

import { byId, closest } from './element.js';

/** @param {HTMLInputElement | HTMLTextAreaElement} field */
async function copied(field) {
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch {
    // Without TLS, browsers offer no clipboard API; the old command still copies the selection.
    field.focus();
    field.select();
    return document.execCommand('copy');
  }
}

export function startCopy() {
  document.addEventListener('click', async (event) => {
    const button = closest(event, '[data-copy]');
    if (!button) return;
    const field = byId(button.dataset.copy ?? '');
    if (!(field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement)) return;
    const done = await copied(field);
    const note = document.querySelector('[data-copied]');
    if (note) note.textContent = done ? 'Copied.' : 'The browser blocks copying. Select the text and copy it.';
    button.focus();
  });
}
