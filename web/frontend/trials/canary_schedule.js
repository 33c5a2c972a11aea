/* The schedule that the canary's form produces, shown while typing. */

import { byId, find, make, setText } from '../shell/element.js';
import { span } from '../shell/format.js';

const MAX_STEPS = 10;

/**
 * @typedef {object} Typed
 * @property {string} steps percentages, separated by commas
 * @property {string} dwell seconds
 * @property {string} advance
 */

/**
 * Return each step's share with the time from the start of the canary to its own, promotion last. A step also lasts
 * until each version has enough requests; null if the form is not valid.
 * @param {Typed} typed
 * @param {number} perS requests that the policy routes per second; NaN if unknown
 * @param {number} needed requests of each version that a step needs
 */
export function canarySchedule({ steps, dwell }, perS, needed) {
  const shares = steps.split(',').flatMap((part) => (part.trim() ? [Number(part.trim().replace(/%$/, '')) / 100] : []));
  const dwellS = Number(dwell);
  const rising = shares.every((share, number) => share > (shares[number - 1] ?? 0) && share < 1);
  if (!shares.length || shares.length > MAX_STEPS || !rising || !dwell.trim() || !(dwellS >= 0)) return null;
  let startS = 0;
  const rows = shares.map((share) => {
    const row = { share, startS };
    // A policy without requests has no estimate.
    const waitS = perS > 0 ? needed / (perS * Math.min(share, 1 - share)) : 0;
    startS += Math.max(dwellS, waitS);
    return row;
  });
  return [...rows, { share: 1, startS }];
}

/**
 * Return the line under the steps: the total time and who advances.
 * @param {number} totalS
 * @param {string} advance
 */
export function totalWords(totalS, advance) {
  const steps = advance === 'by_hand' ? 'You start each step.' : 'Steps start by themselves.';
  const end = advance === 'promote' ? 'Promotion follows by itself.' : 'You promote it.';
  return `At least ${span(totalS)} in total. ${steps} ${end}`;
}

/**
 * Keep the schedule in step with the form around it.
 * @param {HTMLElement} preview
 */
export function startCanarySchedule(preview) {
  const form = preview.closest('form');
  const list = find(preview, 'ol');
  const total = find(preview, 'p');
  if (!form || !list || !total) return;
  const draw = () => {
    const typed = {
      steps: byId('field-steps', HTMLInputElement).value,
      dwell: byId('field-min_dwell_s', HTMLInputElement).value,
      advance: byId('field-advance', HTMLSelectElement).value,
    };
    const rows = canarySchedule(typed, Number(preview.dataset.rate || NaN), Number(preview.dataset.needed));
    list.hidden = !rows;
    if (!rows) {
      setText(total, `Enter 1 to ${MAX_STEPS} increasing percentages between 0 and 100, and a duration in seconds.`);
      return;
    }
    list.replaceChildren(...rows.map(stepOf));
    setText(total, totalWords(rows[rows.length - 1].startS, typed.advance));
  };
  // Beside the settings that it depends on.
  byId('field-advance').closest('.ledger-field')?.after(preview);
  form.addEventListener('input', draw);
  preview.hidden = false;
  draw();
}

/** @param {{ share: number, startS: number }} row */
function stepOf({ share, startS }) {
  const bar = make('progress');
  bar.max = 1;
  bar.value = share;
  bar.setAttribute('aria-hidden', 'true');
  const words = share === 1 ? 'all sessions, promoted' : `${Number((share * 100).toFixed(2))}\u202f% of sessions`;
  const at = startS ? `after ${span(startS)}` : 'at once';
  return make('li', '', bar, make('b', '', words), make('span', '', at));
}
