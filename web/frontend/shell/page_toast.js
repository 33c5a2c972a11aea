/* The message after a change disappears by itself, and does not return on reload. */

const SHOWN_MS = 6000;

export function startToast() {
  const toast = document.querySelector('[data-toast]');
  if (!toast) return;
  const address = new URL(location.href);
  address.searchParams.delete('said');
  history.replaceState(null, '', address);
  setTimeout(() => toast.remove(), SHOWN_MS);
}
