/* The server renders dialogs open, since they have an address. This script makes them modal; closing returns to the
   previous page. */

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
