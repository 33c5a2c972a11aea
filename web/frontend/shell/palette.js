/* The command palette: Ctrl+K or / opens it, words search, arrows select, Enter opens. */

import { byId, closest, find, findAll, required } from './element.js';
import { keyIsTaken } from './keys.js';

const PAUSE_MS = 90;
const MOST_RECENT = 5;
/** Event on the document before a chosen engine's page opens; a page that shows engines itself cancels it. */
export const ENGINE_CHOSEN = 'hw-engine-chosen';

export function startPalette() {
  if (document.getElementById('palette')) new Palette();
}

class Palette {
  constructor() {
    this.dialog = byId('palette', HTMLDialogElement);
    this.field = byId('palette-field', HTMLInputElement);
    this.list = byId('palette-list');
    this.recentKey = `hw-recent-${this.dialog.dataset.person}`;
    this.chosen = 0;
    this.asked = 0;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    byId('palette-button').addEventListener('click', () => this.open());
    document.addEventListener('keydown', (event) => {
      const control = (event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === 'k';
      const slash = event.key === '/' && !keyIsTaken(event);
      if (!control && !slash) return;
      event.preventDefault();
      if (!document.querySelector('dialog[open]')) this.open();
    });
    this.field.addEventListener('input', () => this.#later());
    this.field.addEventListener('keydown', (event) => this.#key(event));
    this.list.addEventListener('click', (event) => {
      const row = closest(event, '[role=option]');
      if (row instanceof HTMLAnchorElement && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        this.#follow(row);
      }
    });
  }

  open() {
    this.dialog.showModal();
    this.field.select();
    this.#ask();
  }

  #later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#ask(), PAUSE_MS);
  }

  async #ask() {
    clearTimeout(this.timer);
    const turn = ++this.asked;
    try {
      const answer = await fetch(`/search?${new URLSearchParams({ q: this.field.value })}`);
      if (!answer.ok) throw new Error(String(answer.status));
      const rows = await answer.text();
      // An answer to earlier words arrives too late.
      if (turn === this.asked) this.list.innerHTML = rows;
      if (turn === this.asked && !this.field.value.trim()) this.#showRecent();
    } catch {
      if (turn === this.asked) this.list.textContent = 'The search failed. Check that Headway runs, then type again.';
    }
    this.chosen = 0;
    this.#mark();
  }

  /**
   * Return the rows chosen last by this person in this browser.
   * @returns {{ name: string, kind: string, href: string, icon: string }[]}
   */
  #recent() {
    try {
      return JSON.parse(localStorage.getItem(this.recentKey) ?? '[]');
    } catch {
      return [];
    }
  }

  #showRecent() {
    const group = this.list.firstElementChild?.cloneNode(true);
    const recent = this.#recent();
    if (!(group instanceof HTMLElement) || !recent.length) return;
    group.setAttribute('aria-label', 'Recent');
    required(group, '.palette-kind').textContent = 'Recent';
    const rows = findAll(group, '[role=option]', HTMLAnchorElement);
    rows.slice(recent.length).forEach((row) => row.remove());
    recent.forEach(({ name, kind, href, icon }, index) => {
      const row = rows[index];
      row.id = `palette-recent-${index}`;
      row.href = href;
      required(row, 'b').textContent = name;
      required(row, 'use', SVGUseElement).setAttribute('href', icon);
      row.dataset.kind = kind;
      find(row, 'span')?.remove();
      (find(row, 'i') ?? row.appendChild(document.createElement('i'))).textContent = kind;
    });
    this.list.prepend(group);
  }

  #rows() {
    return findAll(this.list, '[role=option]', HTMLAnchorElement);
  }

  #mark() {
    const rows = this.#rows();
    rows.forEach((row, index) => row.setAttribute('aria-selected', String(index === this.chosen)));
    this.field.setAttribute('aria-expanded', String(rows.length > 0));
    if (!rows[this.chosen]) return this.field.removeAttribute('aria-activedescendant');
    this.field.setAttribute('aria-activedescendant', rows[this.chosen].id);
    rows[this.chosen].scrollIntoView({ block: 'nearest' });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const rows = this.#rows();
    const step = { ArrowDown: 1, ArrowUp: rows.length - 1 }[event.key];
    if (step !== undefined && rows.length) {
      event.preventDefault();
      this.chosen = (this.chosen + step) % rows.length;
      this.#mark();
    } else if (event.key === 'Enter' && rows[this.chosen]) {
      event.preventDefault();
      this.#follow(rows[this.chosen]);
    } else if (event.key === 'Escape') {
      // A search field would take the first Escape to clear itself, and the page under it would close its drawer.
      event.preventDefault();
      event.stopPropagation();
      this.dialog.close();
    }
  }

  /** @param {HTMLAnchorElement} row */
  #follow(row) {
    this.dialog.close();
    const href = row.getAttribute('href') ?? '';
    const name = required(row, 'b').textContent;
    const kind = row.dataset.kind ?? row.parentElement?.getAttribute('aria-label') ?? '';
    const icon = required(row, 'use', SVGUseElement).getAttribute('href') ?? '';
    const others = this.#recent().filter((other) => other.href !== href);
    localStorage.setItem(this.recentKey, JSON.stringify([{ name, kind, href, icon }, ...others].slice(0, MOST_RECENT)));
    const chosen = new CustomEvent(ENGINE_CHOSEN, { detail: row.dataset.engine, cancelable: true });
    if (row.dataset.engine && !document.dispatchEvent(chosen)) return;
    location.assign(row.href);
  }
}
