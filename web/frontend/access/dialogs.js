/* Dialogs come open from the server, since their address is a link; here they become modal and close to where they came from. */

export function startDialogs() {
  for (const dialog of document.querySelectorAll('dialog[data-modal]')) {
    dialog.open = false;
    dialog.showModal();
    dialog.addEventListener('cancel', (event) => {
      event.preventDefault();
      location.assign(dialog.querySelector('[data-close]').href);
    });
  }
}
