/* Replaces the page's content by that of another address of the same page, without losing the place in it. */

const ROOT = 'topology';

/** Whether a form of the page holds something that the server does not know. */
export function holdsInput(root) {
  const fields = root.querySelectorAll('.drawer input:not([type=hidden]), .drawer select, .drawer textarea');
  return [...fields].some((field) => {
    if (field.type === 'checkbox') return field.checked !== field.defaultChecked;
    if (field.tagName === 'SELECT') return [...field.options].some((option) => option.selected !== option.defaultSelected);
    return field.value !== field.defaultValue;
  });
}

/** Fetch an address and put its topology in the place of the shown one; false when that was not possible. */
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
  const places = ['.topology-body', '.drawer'].map((name) => document.querySelector(name)?.scrollTop ?? 0);
  // A drawer that only changes its content does not slide in again.
  if (document.querySelector('.drawer')) next.classList.add('still');
  old.replaceWith(document.adoptNode(next));
  document.querySelector('.topology-body').scrollTop = places[0];
  const drawer = document.querySelector('.drawer');
  if (drawer && !push) drawer.scrollTop = places[1];
  if (push) history.pushState(null, '', address);
  document.title = fetched.title;
  return true;
}
