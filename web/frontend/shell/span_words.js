/* Durations in the page's labels. */

/** @type {[seconds: number, noun: string][]} */
const WORDS = [
  [86_400, 'day'],
  [3600, 'hour'],
  [60, 'minute'],
  [1, 'second'],
];

/**
 * Return a duration in words: '5 minutes', 'one hour'.
 * @param {number} seconds
 */
export function spanWords(seconds) {
  const [length, noun] = WORDS.find(([size]) => seconds >= size) ?? [1, 'second'];
  const number = Math.round(seconds / length);
  return number === 1 ? `one ${noun}` : `${number} ${noun}s`;
}

/**
 * Return a duration as a short label: 2 s, 10 s, 2 min, 1 h.
 * @param {number} seconds
 */
export function stepWords(seconds) {
  if (seconds >= 3600) return `${Math.round(seconds / 3600)}\u202fh`;
  return seconds < 60 ? `${seconds}\u202fs` : `${Math.round(seconds / 60)}\u202fmin`;
}
