/* Fetches a part of the page again and again and changes what differs, so that focus, selection and typed text stay. */

import { find, required } from './element.js';
import { morph } from './morph.js';

const EVERY_MS = 2000;

/**
 * Keep `part` fresh from its data-refresh address; a hidden page asks nothing. Returns what asks at once.
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
        // Whoever is signed out is sent to the login, which is no part of this page.
        if (answer.type === 'opaqueredirect') return location.reload();
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').body;
        // Somebody may have asked for another state meanwhile.
        if (asked === part.dataset.refresh) show(part, fresh);
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
