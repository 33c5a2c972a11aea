/* Watches the live version: reports a publish by another person, and when our own publish has reached the gateways. */

import { required, setText } from '../shell/element.js';

const WATCH_MS = 5000;
const ARRIVE_MS = 300;
const PATIENCE_MS = 30_000;

/**
 * @param {string} address
 * @param {string} [version]
 */
async function ask(address, version) {
  const answer = await fetch(version ? `${address}?version=${version}` : address, {
    headers: { Accept: 'application/json' },
  });
  return answer.ok ? answer.json() : null;
}

/**
 * Poll until the version just published runs on every gateway, and show it.
 * @param {HTMLElement} banner
 * @param {string} address
 */
export async function followReach(banner, address) {
  const until = performance.now() + PATIENCE_MS;
  while (!('done' in banner.dataset) && performance.now() < until) {
    await new Promise((done) => {
      setTimeout(done, ARRIVE_MS);
    });
    const state = await ask(address, banner.dataset.version).catch(() => null);
    if (!state?.reach) continue;
    setText(required(banner, 'span'), state.reach.words);
    if (state.reach.done) banner.dataset.done = '';
  }
}

/**
 * Check every few seconds, while the page is visible, for another live version; call `onChange` once with the state.
 * @param {string} address
 * @param {string} live
 * @param {(state: { live: number, author: string, ago: string }) => void} onChange
 */
export function watchLive(address, live, onChange) {
  const timer = setInterval(async () => {
    if (document.hidden) return;
    const state = await ask(address).catch(() => null);
    if (!state || String(state.live ?? '') === live) return;
    clearInterval(timer);
    onChange(state);
  }, WATCH_MS);
}
