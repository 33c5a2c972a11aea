/* Asks the server what is wrong, and puts its answer into the page: summary first, each error at its field. */

import { byId, setText, stateShape } from '../page/element.js';
import { settings } from './settings_form.js';

/** Send the form as it stands; returns true when the answer arrived. The server stores nothing. */
export async function fetchCheck(form, address, signal) {
  const answer = await fetch(address, { method: 'POST', body: new FormData(form), signal, headers: { 'X-CSRFToken': form.csrfmiddlewaretoken.value } });
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), 'text/html');
}

/** Put the diff of the answer into the page. */
export function showDiff(answer) {
  byId('diff').replaceChildren(...answer.getElementById('diff').childNodes);
}

/** Put summary and verdict into the page, tie each error to its field, and focus the summary where there is one. */
export function showVerdict(answer) {
  byId('check-summary').replaceWith(answer.getElementById('check-summary'));
  byId('check-verdict').replaceWith(answer.getElementById('check-verdict'));
  clearErrors();
  for (const item of document.querySelectorAll('#error-summary li')) {
    const { path, message } = item.dataset;
    const setting = settings().find((each) => each.dataset.path === path);
    if (!setting) continue;
    setting.classList.add('wrong');
    setting.querySelector('.control select, .control input:not([type="hidden"])').setAttribute('aria-invalid', 'true');
    setting.querySelector('.setting-error').append(code(path), `: ${message}${message.endsWith('?') ? '' : '.'} `);
  }
  document.getElementById('error-summary')?.focus();
}

/** Say that what was checked is not what stands there any more. */
export function forgetVerdict() {
  const verdict = byId('check-verdict');
  if (verdict.dataset.valid !== 'true') return;
  verdict.dataset.valid = 'false';
  verdict.querySelector('.icon').replaceWith(stateShape('unknown'));
  setText(verdict.querySelector('p'), 'Changed since it was checked. Validate again, or publish: that checks too.');
}

function clearErrors() {
  for (const setting of document.querySelectorAll('#settings .setting')) {
    setting.classList.remove('wrong');
    setting.querySelector('[aria-invalid]')?.removeAttribute('aria-invalid');
    setting.querySelector('.setting-error').replaceChildren();
  }
}

function code(text) {
  const made = document.createElement('code');
  made.textContent = text;
  return made;
}
