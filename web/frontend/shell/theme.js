/* Dark and light: a cookie keeps the choice, so that the server can render the first paint in it. */

import { paletteChanged } from '../charts/palette.js';

const YEAR_S = 31_536_000;

/**
 * Let the button switch, and have pictures follow both the button and the system.
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
