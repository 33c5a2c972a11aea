/* Rows by keyboard and mouse: J and K, Enter, Esc, / and what single pages add by attributes. */

/** Which row comes next: `at` -1 is none yet; stays inside the list. */
export function stepped(at, by, count) {
  if (count === 0) return -1;
  if (at < 0) return by > 0 ? 0 : count - 1;
  return Math.min(count - 1, Math.max(0, at + by));
}

/** Whether the key belongs to a field, a dialog or the browser rather than to the page. */
function taken(event) {
  return event.ctrlKey || event.metaKey || event.altKey || Boolean(document.querySelector('dialog:modal'))
    || Boolean(event.target.closest('input, textarea, select, [contenteditable]'));
}

function step(by) {
  const rows = [...document.querySelectorAll('[data-row]')];
  const focused = rows.findIndex((row) => row.contains(document.activeElement));
  const selected = rows.findIndex((row) => row.classList.contains('selected'));
  const next = rows[stepped(focused < 0 ? selected : focused, by, rows.length)];
  const link = next?.querySelector('.ledger-open');
  if (!link) return;
  if (selected >= 0) location.assign(link.href);
  else link.focus();
}

const ACTIONS = {
  j: () => step(1),
  k: () => step(-1),
  '/': () => document.querySelector('[data-search]')?.focus(),
  f: () => document.querySelector('[data-failed]')?.click(),
  c: () => document.querySelector('.drawer [data-copy]')?.click(),
  Escape: () => document.querySelector('.drawer [data-close]')?.click(),
};

export function startRowKeys() {
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && event.target.closest('input, select')) event.target.blur();
    else if (!taken(event) && !event.repeat) {
      const action = ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action) return;
      event.preventDefault();
      action();
    }
  });
  document.addEventListener('click', (event) => {
    const row = event.target.closest('[data-row]');
    if (!row || event.target.closest('a, button, form') || getSelection()?.toString()) return;
    row.querySelector('.ledger-open')?.click();
  });
}
