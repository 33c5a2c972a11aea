/* Keys of the policy editor; single keys are off inside fields and under an open dialog. */

import { find } from '../shell/element.js';
import { onKeys } from '../shell/keys.js';

/**
 * Actions of the keys; a page may lack some.
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
    if (!(event.ctrlKey || event.metaKey) || event.key !== 'Enter' || !validate || find(document, 'dialog[open]'))
      return;
    event.preventDefault();
    validate();
  });
  onKeys({ d: toggleDiff, c: copy, w: whatif, '[': step && (() => step(-1)), ']': step && (() => step(1)) });
}
