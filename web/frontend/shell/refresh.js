/* Fetches a part of the page again and again and changes what differs, so that focus, selection and typed text stay. */

import { find, required } from './element.js';
import { morph } from './morph.js';

const EVERY_MS = 2000;

/**
 * Keep `part` fresh from its data-refresh address; a hidden page asks nothing.
 * @param {HTMLElement | null} part
 */
export function startRefresh(part) {
  if (!part) return;
  const words = required(document, '[data-refreshed]');
  let lost = 0;
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(part.dataset.refresh ?? '', { redirect: 'manual' });
        // Whoever is signed out is sent to the login, which is no part of this page.
        if (answer.type === 'opaqueredirect') return location.reload();
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').body;
        morph(part, fresh);
        // What is over will not change any more.
        const settled = find(fresh, '[data-settled]');
        if (settled) {
          words.textContent = settled.dataset.settled ?? '';
          return undefined;
        }
        lost = 0;
        words.textContent = 'Live';
      } catch {
        lost ||= performance.now();
        words.textContent = `Reconnecting, ${Math.round((performance.now() - lost) / 1000)} s`;
      }
    }
    setTimeout(look, EVERY_MS);
    return undefined;
  };
  setTimeout(look, EVERY_MS);
}
