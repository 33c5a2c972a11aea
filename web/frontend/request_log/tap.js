/* The live tap: polls every second for new records, and inserts them unless the operator is reading. */

import { byId, find, setText } from '../shell/element.js';

const EVERY_MS = 1000;
const STRIP_EVERY = 5;
const MOST_ROWS = 300;

/**
 * Return the button label for waiting rows: "41 new", or "300+ new".
 * @param {number} count
 */
export const newsWords = (count) => (count >= MOST_ROWS ? `${MOST_ROWS}+ new` : `${count} new`);

export class Tap {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    this.address = new URL(root.dataset.tap ?? '', location.href);
    this.after = root.dataset.after ?? '';
    /** @type {((open: boolean) => void) | null} Called after the strip is redrawn. */
    this.onStrip = null;
    this.body = byId('decision-rows');
    this.news = byId('tap-news');
    this.words = byId('tap-words');
    this.live = byId('tap-live');
    this.pause = byId('tap-pause');
    /** @type {string[]} */
    this.waiting = [];
    this.count = 0;
    this.busy = false;
    this.paused = false;
    this.hovered = false;
    this.asked = 1;
    this.body.addEventListener('pointerenter', () => {
      this.hovered = true;
    });
    this.body.addEventListener('pointerleave', () => {
      this.hovered = false;
    });
    this.live.addEventListener('click', () => this.hold(false));
    this.pause.addEventListener('click', () => this.hold(!this.paused));
    this.news.addEventListener('click', () => this.#show());
    this.timer = setInterval(() => this.#tick(), EVERY_MS);
    this.#tick();
  }

  /** Pause or resume, as Space does. */
  hold(paused = !this.paused) {
    this.paused = paused;
    this.live.setAttribute('aria-pressed', String(!paused));
    this.pause.setAttribute('aria-pressed', String(paused));
    this.words.textContent = paused ? 'Paused' : 'Live';
    if (!paused) this.#show();
  }

  get #reading() {
    return (
      this.paused || this.hovered || this.body.contains(document.activeElement) || Boolean(getSelection()?.toString())
    );
  }

  async #tick() {
    if (document.hidden || this.busy) return;
    this.busy = true;
    const address = new URL(this.address);
    address.searchParams.set('after', this.after);
    if (this.asked % STRIP_EVERY === 0) address.searchParams.set('strip', '1');
    this.asked += 1;
    try {
      const answer = await fetch(address, { headers: { Accept: 'application/json' } });
      if (!answer.ok) throw new Error(String(answer.status));
      this.#take(await answer.json());
      if (!this.paused) this.words.textContent = 'Live';
    } catch {
      this.words.textContent = 'Reconnecting';
    } finally {
      this.busy = false;
    }
  }

  /** @param {Record<'after' | 'rows' | 'strip' | 'states' | 'running' | 'title', string> & { count: number }} news */
  #take({ after, count, rows, strip, states, running, title }) {
    this.after = after;
    if (strip && !this.paused) {
      replaceUnread(document.getElementById('decision-states'), states);
      replaceUnread(document.getElementById('running-rows'), running);
      if (title) setText(byId('decision-title'), title);
    }
    const body = document.getElementById('strip-body');
    if (strip && body && !body.querySelector('.strip-brush')) {
      const open = find(body, '.decision-strip-twin')?.hidden === false;
      body.innerHTML = strip;
      this.onStrip?.(open);
    }
    if (count) {
      this.waiting.unshift(rows);
      this.count = Math.min(MOST_ROWS, this.count + count);
      this.waiting.length = Math.min(this.waiting.length, 60);
    }
    if (!this.#reading) this.#show();
    else {
      this.news.hidden = !this.count;
      this.news.textContent = newsWords(this.count);
    }
  }

  #show() {
    if (this.count) {
      const holder = document.createElement('template');
      holder.innerHTML = this.waiting.join('');
      const rows = [...this.body.children];
      for (const row of [...holder.content.children]) {
        row.classList.add('fresh');
        const index = rowIndex(arrivalOf(row), rows.map(arrivalOf));
        this.body.insertBefore(row, rows[index] ?? null);
        rows.splice(index, 0, row);
      }
      while (this.body.children.length > MOST_ROWS) this.body.lastElementChild?.remove();
      document.getElementById('decision-none')?.remove();
    }
    this.waiting = [];
    this.count = 0;
    this.news.hidden = true;
  }
}

/**
 * Replace the contents of a part, unless the focus is in it.
 * @param {HTMLElement | null} part
 * @param {string | undefined} html
 */
function replaceUnread(part, html) {
  if (part && html !== undefined && !part.contains(document.activeElement)) part.innerHTML = html;
}

/**
 * Return the index of a row in a table sorted by arrival, newest first: a later record may have arrived earlier.
 * @param {string} arrival ISO 8601, all in one form
 * @param {string[]} others
 */
export function rowIndex(arrival, others) {
  const index = others.findIndex((other) => other <= arrival);
  return index < 0 ? others.length : index;
}

/** @param {Element} row */
function arrivalOf(row) {
  return row.querySelector('time')?.dateTime ?? '';
}
