/* Keys of the policy editor; single keys are off inside fields and under an open dialog. */

import { isWithin } from '../shell/element.js';

/**
 * What the keys do; a page may lack some.
 * @typedef {object} KeyActions
 * @property {() => void} [validate]
 * @property {() => void} [toggleDiff]
 * @property {(by: number) => void} [step]
 * @property {() => void} [copy]
 * @property {() => void} [whatif]
 */

/** @param {KeyActions} actions */
export function listenToPolicyKeys({ validate, toggleDiff, step, copy, whatif }) {
  document.addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return;
    if ((event.ctrlKey || event.metaKey) && event.key === 'Enter' && validate) {
      event.preventDefault();
      validate();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isWithin(event, 'input, textarea, select')) return;
    const action = { d: toggleDiff, c: copy, w: whatif, '[': step && (() => step(-1)), ']': step && (() => step(1)) }[
      event.key.toLowerCase()
    ];
    if (!action || (event.repeat && event.key.length === 1 && !'[]'.includes(event.key))) return;
    event.preventDefault();
    action();
  });
}
