/* A message at the bottom right after an action; it disappears by itself. */

const SHOWN_MS = 6000;

/**
 * Show a message.
 * @param {string} words
 */
export function toast(words) {
  let region = document.getElementById('toasts');
  if (!region) {
    region = document.createElement('div');
    region.id = 'toasts';
    region.className = 'toasts';
    region.setAttribute('role', 'status');
    document.body.append(region);
  }
  const made = document.createElement('p');
  made.className = 'fleet-toast';
  made.textContent = words;
  region.append(made);
  setTimeout(() => made.remove(), SHOWN_MS);
}
