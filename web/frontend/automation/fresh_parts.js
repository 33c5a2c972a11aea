/* Keeps the words of the page fresh: what changed is changed, so that focus and selection stay. */

import { byId, required } from '../shell/element.js';
import { morph } from '../shell/morph.js';

const EVERY_MS = 2000;
const PARTS = ['steering-top', 'steering-lists'];

/** @param {HTMLElement} root */
export function startFreshParts(root) {
  const words = required(document, '[data-refreshed]');
  let lostAt = 0;
  const look = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(root.dataset.fragment ?? '', { redirect: 'manual' });
        // Whoever is signed out is sent to the login, which is no part of this page.
        if (answer.type === 'opaqueredirect') return location.reload();
        if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
        const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html');
        for (const part of PARTS) morph(byId(part), required(fresh, `#${part}`));
        lostAt = 0;
        words.textContent = 'Live';
      } catch {
        lostAt ||= performance.now();
        words.textContent = `Reconnecting, ${Math.round((performance.now() - lostAt) / 1000)}\u202fs`;
      }
      root.classList.toggle('lost', Boolean(lostAt));
    }
    setTimeout(look, EVERY_MS);
    return undefined;
  };
  setTimeout(look, EVERY_MS);
}
