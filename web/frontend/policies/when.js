/* The time of a publish: button label, local time, and countdown. */

import { byId, find, required, setText } from '../shell/element.js';

const MINUTE_S = 60;
const HOUR_S = 3600;
const DAY_S = 86_400;

/**
 * Return seconds until a moment in words with two units: 1 d 3 h, 12 min 5 s.
 * @param {number} seconds
 */
export function untilWords(seconds) {
  const left = Math.max(0, Math.round(seconds));
  if (left === 0) return 'now';
  /** @type {[seconds: number, unit: string][]} */
  const parts = [
    [DAY_S, 'd'],
    [HOUR_S, 'h'],
    [MINUTE_S, 'min'],
    [1, 's'],
  ];
  const first = parts.findIndex(([unit]) => left >= unit);
  const words = [];
  let rest = left;
  for (const [unit, name] of parts.slice(first, first + 2)) {
    const number = Math.floor(rest / unit);
    rest -= number * unit;
    if (number) words.push(`${number}\u202f${name}`);
  }
  return `in ${words.join(' ')}`;
}

/**
 * Return a UTC moment (milliseconds) on the clock of the given zone; empty where it is UTC itself.
 * @param {number} at
 * @param {string} zone
 */
export function localWords(at, zone) {
  if (!Number.isFinite(at)) return '';
  /** @param {string} timeZone */
  const written = (timeZone) =>
    new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'short', timeZone }).format(at);
  const here = written(zone);
  return here === written('UTC') ? '' : `${here} your time`;
}

const ownZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/**
 * Update the button and the note from the selected time.
 * @param {HTMLDialogElement} dialog
 */
export function startWhen(dialog) {
  const field = find(dialog, '#at', HTMLInputElement);
  if (!field) return;
  const later = required(dialog, 'input[name="when"][value="later"]', HTMLInputElement);
  const answer = byId('answer');
  const show = () => {
    setText(answer, (later.checked ? answer.dataset.later : answer.dataset.now) ?? '');
    const here = localWords(Date.parse(`${field.value}Z`), ownZone());
    setText(byId('at-note'), here ? `UTC, ${here}` : 'UTC');
  };
  dialog.addEventListener('change', show);
  field.addEventListener('input', () => {
    later.checked = true;
    show();
  });
  show();
}

/**
 * Count down to a scheduled publish.
 * @param {HTMLTimeElement} time
 * @param {HTMLElement} until
 */
export function startCountdown(time, until) {
  const at = Date.parse(time.dateTime);
  time.title = localWords(at, ownZone());
  const show = () => setText(until, untilWords((at - Date.now()) / 1000));
  show();
  setInterval(show, 1000);
}
