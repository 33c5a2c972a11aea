/* Writes the server's words into the rows of the topology table; only what differs is touched. */

import { setText } from '../page/element.js';

const TEXTS = ['word', 'reason', 'since', 'incarnation', 'trust_word', 'load', 'work', 'hit', 'age'];

/** Show a state in an existing shape. */
function showState(shape, state) {
  if (shape.dataset.state === state) return;
  shape.dataset.state = state;
  shape.setAttribute('class', `icon shape shape-${state}`);
  shape.firstElementChild.setAttribute('href', `#s-${state}`);
}

/** Bring one row up to date; `line` is the server's description of it. */
export function showRow(row, line) {
  for (const name of TEXTS) {
    const cell = row.querySelector(`[data-cell="${name}"]`);
    if (cell) setText(cell, line[name]);
  }
  const reason = row.querySelector('[data-cell="reason"]');
  if (reason && reason.title !== line.reason) reason.title = line.reason;
  showState(row.querySelector('.shape'), line.state);
  const trust = row.querySelector('.trust');
  if (trust.className !== `trust trust-${line.trust}`) trust.className = `trust trust-${line.trust}`;
  const fill = row.querySelector('.load-fill');
  if (fill.getAttribute('width') !== String(line.place)) {
    fill.setAttribute('width', line.place);
    fill.setAttribute('class', `load-fill heat-${line.heat}`);
  }
}
