/* Keys of the policy editor; single keys are off inside fields and under an open dialog. */

/** `actions` {validate, toggleDiff, step, copy, whatif} are what the keys do; those a page lacks are left out. */
export function listenToPolicyKeys({ validate, toggleDiff, step, copy, whatif }) {
  document.addEventListener('keydown', (event) => {
    if (document.querySelector('dialog[open]')) return;
    if ((event.ctrlKey || event.metaKey) && event.key === 'Enter' && validate) {
      event.preventDefault();
      validate();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest('input, textarea, select')) return;
    const action = { d: toggleDiff, c: copy, w: whatif, '[': step && (() => step(-1)), ']': step && (() => step(1)) }[event.key.toLowerCase()];
    if (!action || event.repeat && event.key.length === 1 && !'[]'.includes(event.key)) return;
    event.preventDefault();
    action();
  });
}
