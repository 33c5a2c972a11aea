/* The stepper and the one filled button: where the draft stands between an idea and live. */

import { byId, setText } from '../page/element.js';

const count = (number, noun) => `${number} ${noun}${number === 1 ? '' : 's'}`;

/** Show the state {changes, checked, problems, notes, live}. */
export function showSteps({ changes, checked, problems, notes, live }) {
  const valid = checked && problems === 0;
  const against = live ? `v${live}` : 'the defaults';
  setText(byId('step-draft-words'), changes ? `${count(changes, 'change')} against ${against}` : 'nothing changed yet');
  const noted = notes ? `, ${count(notes, 'note')}` : '';
  setText(byId('step-validated-words'), !checked ? 'not checked yet' : problems ? count(problems, 'error') : `no errors${noted}`);
  mark('step-draft', changes ? 'done' : 'now');
  mark('step-validated', valid && changes ? 'done' : changes ? 'now' : '');
  mark('step-live', valid && changes ? 'now' : '');
  const ready = valid && changes > 0;
  document.getElementById('publish')?.classList.toggle('primary', ready);
  document.getElementById('validate')?.classList.toggle('primary', !ready);
}

function mark(id, state) {
  const step = byId(id);
  step.classList.toggle('done', state === 'done');
  step.classList.toggle('now', state === 'now');
}
