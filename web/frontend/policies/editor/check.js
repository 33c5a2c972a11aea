/* Validates the draft on the server and shows the result: summary first, errors at their fields. */

import { byId, find, findAll, required, setText, stateShape } from '../../shell/element.js';
import { controlOf, settings } from './settings_form.js';

/**
 * Send the form as it is; return the response page. The server stores nothing.
 * @param {HTMLFormElement} form
 * @param {string} address
 * @param {AbortSignal} signal
 */
export async function fetchCheck(form, address, signal) {
  const answer = await fetch(address, {
    method: 'POST',
    body: new FormData(form),
    signal,
    headers: { 'X-CSRFToken': required(form, '[name=csrfmiddlewaretoken]', HTMLInputElement).value },
  });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), 'text/html');
}

/**
 * Put the diff of the answer into the page.
 * @param {Document} answer
 */
export function showDiff(answer) {
  byId('diff').replaceChildren(...required(answer, '#diff').childNodes);
}

/**
 * Put summary and verdict into the page, link errors to their fields, and focus a summary.
 * @param {Document} answer
 */
export function showVerdict(answer) {
  byId('check-summary').replaceWith(required(answer, '#check-summary'));
  byId('check-verdict').replaceWith(required(answer, '#check-verdict'));
  clearErrors();
  for (const { path, message } of problems()) {
    const setting = settings().find((candidate) => candidate.dataset.path === path);
    if (!setting) continue;
    setting.classList.add('wrong');
    controlOf(setting).setAttribute('aria-invalid', 'true');
    required(setting, '.setting-error').append(code(path), `: ${message}${message.endsWith('?') ? '' : '.'} `);
  }
  document.getElementById('error-summary')?.focus();
}

/** Return the errors of the summary on the page. */
export function problems() {
  return findAll(document, '#error-summary li').map(({ dataset: { path = '', message = '' } }) => ({ path, message }));
}

/** Show that the text has changed since the check. */
export function forgetVerdict() {
  const verdict = byId('check-verdict');
  if (verdict.dataset.valid !== 'true') return;
  verdict.dataset.valid = 'false';
  required(verdict, '.icon', SVGElement).replaceWith(stateShape('unknown'));
  setText(
    required(verdict, 'p'),
    'Changed since the last check. Validate again, or publish: publishing also validates.',
  );
}

function clearErrors() {
  for (const setting of findAll(document, '#settings .setting')) {
    setting.classList.remove('wrong');
    find(setting, '[aria-invalid]')?.removeAttribute('aria-invalid');
    required(setting, '.setting-error').replaceChildren();
  }
}

/** @param {string} text */
function code(text) {
  const made = document.createElement('code');
  made.textContent = text;
  return made;
}
