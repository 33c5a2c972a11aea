/* Dialogs come open from the server, since their address is a link. Here they become modal, and close to where they
   came from. */

import { findAll, required } from './element.js';

export function startDialogs() {
  for (const dialog of findAll(document, 'dialog[data-modal]', HTMLDialogElement)) {
    dialog.open = false;
    dialog.showModal();
    dialog.addEventListener('cancel', (event) => {
      event.preventDefault();
      location.assign(required(dialog, '[data-close]', HTMLAnchorElement).href);
    });
  }
}
