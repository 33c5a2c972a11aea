/* What a page says after a change goes away by itself, and is not said again when the page is loaded again. */

const SHOWN_MS = 6000;

export function startToast() {
  const toast = document.querySelector('[data-toast]');
  if (!toast) return;
  const address = new URL(location.href);
  address.searchParams.delete('said');
  history.replaceState(null, '', address);
  setTimeout(() => toast.remove(), SHOWN_MS);
}
