/* Buttons with data-passkey get or create a passkey: they fetch options, ask the browser, and send its answer. */

import { find } from '../shell/element.js';

/**
 * @param {string} address
 * @param {HTMLFormElement} form
 * @param {unknown} [body]
 */
async function sent(address, form, body) {
  const token = find(form, '[name=csrfmiddlewaretoken]', HTMLInputElement)?.value ?? '';
  const headers = { 'X-CSRFToken': token, 'Content-Type': 'application/json', Accept: 'application/json' };
  const answer = await fetch(address, { method: 'POST', headers, body: body ? JSON.stringify(body) : null });
  const read = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(read.error ?? 'The server does not answer. Try again.');
  return read;
}

/**
 * @param {HTMLButtonElement} button
 * @param {HTMLFormElement} form
 */
async function use({ dataset: { passkey, options = '', answer = '' } }, form) {
  const { publicKey } = await sent(options, form);
  const created = passkey === 'create';
  const made = created
    ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey) })
    : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey) });
  const name = find(form, '[name=name]', HTMLInputElement)?.value ?? '';
  const address = created ? `${answer}?name=${encodeURIComponent(name)}` : answer;
  const { open } = await sent(address, form, made);
  location.assign(open);
}

for (const button of document.querySelectorAll('[data-passkey]')) {
  const supported = !!window.PublicKeyCredential?.parseRequestOptionsFromJSON;
  if (!(button instanceof HTMLButtonElement) || !button.form || !supported) continue;
  const { form } = button;
  button.hidden = false;
  button.addEventListener('click', () => {
    use(button, form).catch((error) => {
      const note = find(document, '[data-passkey-error]');
      if (note) note.textContent = error instanceof DOMException ? 'No passkey was used.' : error.message;
    });
  });
}
