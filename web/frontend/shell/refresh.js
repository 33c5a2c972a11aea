/* Refreshes a part of the page and changes only differences, so that focus, selection and typed text stay. */

import { Idiomorph } from 'idiomorph';
import { find, required } from './element.js';
import { labelCells } from './stacked_tables.js';

const EVERY_MS = 2000;

/**
 * Change the content of `part` into that of `fresh`, whose elements it may take. An open <details> stays open, and a
 * changed input as it is.
 * @param {Element} part
 * @param {Element} fresh
 */
export function morph(part, fresh) {
  labelCells(fresh);
  Idiomorph.morph(part, [...fresh.childNodes], {
    morphStyle: 'innerHTML',
    callbacks: {
      beforeAttributeUpdated: (name, element) =>
        !(element instanceof HTMLDetailsElement && name === 'open') &&
        !(element instanceof HTMLInputElement && (name === 'value' || name === 'checked') && isChanged(element)),
    },
  });
}

/** @param {HTMLInputElement} input */
function isChanged(input) {
  return input.value !== input.defaultValue || input.checked !== input.defaultChecked;
}

/**
 * Refresh `part` from its data-refresh address while the page is visible. Return the function that refreshes now.
 * @param {HTMLElement} part
 * @param {(part: HTMLElement, fresh: HTMLElement) => void} show
 */
export function startRefresh(part, show = morph) {
  const words = required(document, '[data-refreshed]');
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let lost = 0;
  const refresh = async () => {
    const asked = part.dataset.refresh ?? '';
    if (!document.hidden) {
      try {
        const answer = await fetch(asked, { redirect: 'manual' });
        // A signed-out user is redirected to the login page.
        if (answer.type === 'opaqueredirect') return location.reload();
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').body;
        // Before its elements move into the page.
        const settled = find(fresh, '[data-settled]');
        // The address may have changed in the meantime.
        if (asked === part.dataset.refresh) show(part, fresh);
        // A finished part does not change again.
        if (settled) {
          words.textContent = settled.dataset.settled ?? '';
          return undefined;
        }
        lost = 0;
        words.textContent = 'Live';
      } catch {
        lost ||= performance.now();
        words.textContent = `Reconnecting, ${Math.round((performance.now() - lost) / 1000)}\u202fs`;
      }
      part.classList.toggle('lost', Boolean(lost));
    }
    clearTimeout(timer);
    timer = setTimeout(refresh, EVERY_MS);
    return undefined;
  };
  timer = setTimeout(refresh, EVERY_MS);
  return refresh;
}
