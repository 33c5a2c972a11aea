/* The stepper and the primary button: the progress of the draft to live. */

import { byId, setText } from '../../shell/element.js';

/**
 * @param {number} number
 * @param {string} noun
 */
const count = (number, noun) => `${number} ${noun}${number === 1 ? '' : 's'}`;

/**
 * Show the state {changes, checked, problems, notes, live}.
 * @param {{ changes: number, checked: boolean, problems: number, notes: number, live: string }} state
 */
export function showSteps({ changes, checked, problems, notes, live }) {
  const valid = checked && problems === 0;
  const against = live ? `v${live}` : 'the defaults';
  setText(byId('step-draft-words'), changes ? `${count(changes, 'change')} against ${against}` : 'no changes yet');
  const noted = notes ? `, ${count(notes, 'note')}` : '';
  setText(
    byId('step-validated-words'),
    !checked ? 'not validated yet' : problems ? count(problems, 'error') : `no errors${noted}`,
  );
  mark('step-draft', changes ? 'done' : 'now');
  mark('step-validated', valid && changes ? 'done' : changes ? 'now' : '');
  mark('step-live', valid && changes ? 'now' : '');
  const ready = valid && changes > 0;
  document.getElementById('publish')?.classList.toggle('primary', ready);
  document.getElementById('validate')?.classList.toggle('primary', !ready);
}

/**
 * @param {string} id
 * @param {string} state
 */
function mark(id, state) {
  const step = byId(id);
  step.classList.toggle('done', state === 'done');
  step.classList.toggle('now', state === 'now');
}
