/* Writes the server's texts into the rows of the topology table where they differ. */

import { find, required, setText } from '../../shell/element.js';

/**
 * The server's texts of one engine.
 * @typedef {Record<string, string>} RowNews
 */

/**
 * The server's update of the page.
 * @typedef {object} TopologyNews
 * @property {string} finding
 * @property {string} summary
 * @property {string} stale '' if fresh
 * @property {string} list changes with the set of rows
 * @property {Record<string, RowNews>} rows by engine
 * @property {{ flight: string, effect: string, report: string } | null} drawer
 */

const TEXTS = ['word', 'reason', 'since', 'incarnation', 'trust_word', 'load', 'work', 'hit', 'age'];

/**
 * Show a state in an existing shape.
 * @param {SVGElement} shape
 * @param {string} state
 */
function showState(shape, state) {
  if (shape.dataset.state === state) return;
  shape.dataset.state = state;
  shape.setAttribute('class', `icon shape shape-${state}`);
  shape.firstElementChild?.setAttribute('href', `#s-${state}`);
}

/**
 * Update one row from `line`, the server's texts of it.
 * @param {HTMLElement} row
 * @param {RowNews} line
 */
export function showRow(row, line) {
  for (const name of TEXTS) {
    const cell = row.querySelector(`[data-cell="${name}"]`);
    if (cell) setText(cell, line[name]);
  }
  row.classList.toggle('silent', Boolean(line.stale));
  const reason = find(row, '[data-cell="reason"]');
  if (reason && reason.title !== line.reason) reason.title = line.reason;
  showState(required(row, '.shape', SVGElement), line.state);
  const trust = required(row, '.trust');
  if (trust.className !== `trust trust-${line.trust}`) trust.className = `trust trust-${line.trust}`;
  const fill = required(row, '.load-fill', SVGElement);
  if (fill.getAttribute('width') !== String(line.position)) {
    fill.setAttribute('width', line.position);
    fill.setAttribute('class', `load-fill heat-${line.heat}`);
  }
}
