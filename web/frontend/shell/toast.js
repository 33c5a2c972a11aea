/* One sentence at the bottom right about what was just done; it leaves by itself. */

const SHOWN_MS = 6000;

/**
 * Show a sentence.
 * @param {string} words
 */
export function toast(words) {
  let place = document.getElementById('toasts');
  if (!place) {
    place = document.createElement('div');
    place.id = 'toasts';
    place.className = 'toasts';
    place.setAttribute('role', 'status');
    document.body.append(place);
  }
  const made = document.createElement('p');
  made.className = 'fleet-toast';
  made.textContent = words;
  place.append(made);
  setTimeout(() => made.remove(), SHOWN_MS);
}
