/* Buttons with data-passkey get or create a passkey: they fetch options, ask the browser, and send its answer. */

import { find } from '../shell/element.js';

/** @param {string} text base64url */
const bytes = (text) =>
  Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (letter) => letter.charCodeAt(0));

/** @param {ArrayBuffer} buffer */
const base64url = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replaceAll('=', '');

/** @param {{ id: string }[]} list */
const known = (list) => (list ?? []).map((item) => ({ ...item, id: bytes(item.id) }));

/** @param {any} options of the server, in JSON */
function readable({ publicKey: given }) {
  const publicKey = { ...given, challenge: bytes(given.challenge) };
  if (given.user) publicKey.user = { ...given.user, id: bytes(given.user.id) };
  publicKey.excludeCredentials = known(given.excludeCredentials);
  publicKey.allowCredentials = known(given.allowCredentials);
  return { publicKey };
}

/** @param {any} credential of the browser */
function sendable(credential) {
  const { response } = credential;
  const names = ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature', 'userHandle'];
  const texts = names.filter((name) => response[name]).map((name) => [name, base64url(response[name])]);
  return {
    id: credential.id,
    rawId: base64url(credential.rawId),
    type: credential.type,
    clientExtensionResults: credential.getClientExtensionResults(),
    response: Object.fromEntries(texts),
  };
}

/**
 * @param {string} address
 * @param {HTMLFormElement} form
 * @param {unknown} [body]
 */
async function sent(address, form, body) {
  const token = find(form, '[name=csrfmiddlewaretoken]', HTMLInputElement)?.value ?? '';
  const answer = await fetch(address, {
    method: 'POST',
    headers: { 'X-CSRFToken': token, 'Content-Type': 'application/json', Accept: 'application/json' },
    body: body ? JSON.stringify(body) : null,
  });
  const read = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(read.error ?? 'The server does not answer. Try again.');
  return read;
}

/**
 * @param {HTMLButtonElement} button
 * @param {HTMLFormElement} form
 */
async function use(button, form) {
  const { passkey, options = '', answer = '' } = button.dataset;
  const asked = readable(await sent(options, form));
  const made = passkey === 'create' ? navigator.credentials.create(asked) : navigator.credentials.get(asked);
  const name = find(form, '[name=name]', HTMLInputElement)?.value ?? '';
  const address = passkey === 'create' ? `${answer}?name=${encodeURIComponent(name)}` : answer;
  const { open } = await sent(address, form, sendable(await made));
  location.assign(open);
}

for (const button of document.querySelectorAll('[data-passkey]')) {
  if (!(button instanceof HTMLButtonElement) || !button.form || !window.PublicKeyCredential) continue;
  const { form } = button;
  button.hidden = false;
  button.addEventListener('click', async () => {
    const note = find(document, '[data-passkey-error]');
    button.disabled = true;
    try {
      await use(button, form);
    } catch (error) {
      const ended = error instanceof DOMException;
      if (note) note.textContent = ended ? 'No passkey was used.' : error instanceof Error ? error.message : '';
      button.disabled = false;
    }
  });
}
