/* The confirmation of a publish or rollback as a modal dialog; without this script it is open on the page. */

import { byId, find, required, setText } from '../shell/element.js';
import { startWhen } from './when.js';

/**
 * Make the dialog modal; Escape and the close button lead back to the page under it.
 * @param {HTMLDialogElement} dialog
 */
export function startQuestion(dialog) {
  dialog.close();
  dialog.showModal();
  const back = byId('question-close', HTMLAnchorElement).href;
  dialog.addEventListener('cancel', (event) => {
    event.preventDefault();
    location.assign(back);
  });
  startWhen(dialog);
  const typed = find(document, '#typed', HTMLInputElement);
  if (!typed) return;
  typed.focus();
  required(dialog, 'form').addEventListener('submit', (event) => {
    // Approve and withdraw change nothing live and need no typed word.
    if (event.submitter?.hasAttribute('formaction') || typed.value.trim() === typed.dataset.word) return;
    event.preventDefault();
    const problem = typed.value.trim() ? `"${typed.value.trim()}" does not match.` : 'the field is empty.';
    setText(byId('typed-error'), `Type ${typed.dataset.word} to ${typed.dataset.verb}: ${problem}`);
    typed.setAttribute('aria-invalid', 'true');
    typed.focus();
  });
}
