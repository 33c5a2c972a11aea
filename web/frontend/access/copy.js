/* Buttons with data-copy put the text of the field they name on the clipboard, and say so. */

async function copied(field) {
  try {
    await navigator.clipboard.writeText(field.value);
    return true;
  } catch {
    // Without TLS browsers offer no clipboard to scripts; the old command still copies what is selected.
    field.focus();
    field.select();
    return document.execCommand('copy');
  }
}

export function startCopy() {
  document.addEventListener('click', async (event) => {
    const button = event.target.closest('[data-copy]');
    if (!button) return;
    const done = await copied(document.getElementById(button.dataset.copy));
    const note = document.querySelector('[data-copied]');
    if (note) note.textContent = done ? 'Copied.' : 'The browser does not let pages copy. Select the text and copy it yourself.';
    button.focus();
  });
}
