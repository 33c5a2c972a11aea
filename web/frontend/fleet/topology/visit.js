/* Replaces the page's content by that of another address of the same page, and keeps the scroll position. */

import { find, findAll, required } from '../../shell/element.js';

const ROOT = 'topology';

/**
 * Return whether a form of the page has unsaved input.
 * @param {ParentNode} root
 */
export function holdsInput(root) {
  const inputs = findAll(root, '.drawer input:not([type=hidden])', HTMLInputElement);
  const options = findAll(root, '.drawer select option', HTMLOptionElement);
  const areas = findAll(root, '.drawer textarea', HTMLTextAreaElement);
  return (
    inputs.some((input) =>
      input.type === 'checkbox' ? input.checked !== input.defaultChecked : input.value !== input.defaultValue,
    ) ||
    options.some((option) => option.selected !== option.defaultSelected) ||
    areas.some((area) => area.value !== area.defaultValue)
  );
}

/**
 * Fetch an address and replace the topology shown; return false on failure.
 * @param {string} address
 */
export async function visit(address, { push = true, only = '' } = {}) {
  let answer;
  try {
    answer = await fetch(address, { headers: { Accept: 'text/html' } });
  } catch {
    return false;
  }
  const fetched = new DOMParser().parseFromString(await answer.text(), 'text/html');
  const selector = only || `#${ROOT}`;
  const [old, next] = [document.querySelector(selector), fetched.querySelector(selector)];
  if (!answer.ok || !old || !next) {
    if (push) location.assign(address);
    return false;
  }
  const scrolled = ['.topology-body', '.drawer'].map((name) => find(document, name)?.scrollTop ?? 0);
  // A drawer that stays open does not slide in again.
  if (document.querySelector('.drawer')) next.classList.add('still');
  old.replaceWith(document.adoptNode(next));
  required(document, '.topology-body').scrollTop = scrolled[0];
  const drawer = document.querySelector('.drawer');
  if (drawer && !push) drawer.scrollTop = scrolled[1];
  if (push) history.pushState(null, '', address);
  document.title = fetched.title;
  return true;
}
