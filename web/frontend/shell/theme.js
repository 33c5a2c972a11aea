/* Dark and light: a cookie stores the choice for the first paint by the server. */

import { paletteChanged } from '../charts/palette.js';

const YEAR_S = 31_536_000;

/**
 * Switch by the button, and redraw charts on changes by the button or the system.
 * @param {HTMLElement | null} button
 */
export function startTheme(button) {
  const light = matchMedia('(prefers-color-scheme: light)');
  button?.addEventListener('click', () => {
    const root = document.documentElement;
    const now = root.dataset.theme ?? (light.matches ? 'light' : 'dark');
    root.dataset.theme = now === 'dark' ? 'light' : 'dark';
    document.cookie = `theme=${root.dataset.theme}; Path=/; Max-Age=${YEAR_S}; SameSite=Lax`;
    paletteChanged();
  });
  for (const query of [light, matchMedia('(prefers-contrast: more)'), matchMedia('(forced-colors: active)')]) {
    query.addEventListener('change', paletteChanged);
  }
}
