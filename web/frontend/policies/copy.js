/* Copies the JSON that the page shows. */

import { required, setText } from '../shell/element.js';

const SAID_MS = 1500;

/**
 * Show the button and return the copy function; the button briefly shows the result.
 * @param {HTMLButtonElement} button
 * @param {HTMLTextAreaElement} area
 */
export function startCopy(button, area) {
  const words = required(button, 'span');
  const before = words.textContent ?? '';
  const copy = async () => {
    const done = await navigator.clipboard.writeText(area.value).then(
      () => true,
      () => false,
    );
    setText(words, done ? 'Copied' : 'Select and copy by hand');
    setTimeout(() => setText(words, before), SAID_MS);
  };
  button.hidden = !navigator.clipboard;
  button.addEventListener('click', copy);
  return copy;
}
