/* The Engines page: drawers without page loads, live figures, a checklist that fills in, keys. */

import { byId, closest, find, findAll, isWithin, required, setText } from '../../shell/element.js';
import { showRow } from './live_rows.js';
import { holdsInput, visit } from './visit.js';
/** @import { TopologyNews } from './live_rows.js' */

const POLL_MS = 1000;
const FILTER_MS = 250;
const FIELDS = 'input, textarea, select, [contenteditable]';

/** The address of the content shown; after a rejected form it differs from the document's. */
const here = () => byId('topology').dataset.address || location.href;
const rows = () => findAll(document, 'tr[data-engine]');

/** Whether the operator is typing in the drawer, which must then not be replaced. */
const busy = () => holdsInput(document) || Boolean(document.activeElement?.closest('.drawer form'));

/** Polls for changes and shows them. */
class LiveView {
  constructor() {
    this.list = '';
    this.lostAt = 0;
  }

  async refresh() {
    const root = byId('topology');
    const asked = new URL(here(), location.href).search;
    try {
      const answer = await fetch(`${root.dataset.live}${asked}`, { headers: { Accept: 'application/json' } });
      if (answer.redirected) {
        location.reload();
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      const news = await answer.json();
      this.lostAt = 0;
      if (asked === new URL(here(), location.href).search) await this.#show(news);
    } catch {
      this.lostAt ||= performance.now();
    }
    this.#showConnection();
  }

  #showConnection() {
    const words = this.lostAt ? `Reconnecting, ${Math.round((performance.now() - this.lostAt) / 1000)}\u202fs` : 'Live';
    setText(byId('live-words'), words);
    byId('topology').classList.toggle('lost', Boolean(this.lostAt));
  }

  /** @param {TopologyNews} news */
  async #show(news) {
    setText(byId('finding'), news.finding);
    setText(byId('summary'), news.summary);
    const stale = byId('stale');
    stale.hidden = !news.stale;
    setText(required(stale, 'span'), news.stale);
    for (const row of rows()) {
      const line = news.rows[row.dataset.engine ?? ''];
      if (line) showRow(row, line);
    }
    const changed = this.list && this.list !== news.list;
    this.list = news.list;
    if (changed && !byId('filters').contains(document.activeElement))
      await visit(here(), { push: false, only: '#topology-list' });
    await this.#showDrawer(news);
  }

  /** @param {TopologyNews} news */
  async #showDrawer({ drawer, rows: lines }) {
    const flight = find(document, '#flight');
    if (!drawer || !flight) return;
    setText(flight, drawer.flight);
    const effect = find(document, '#flight-effect');
    if (effect && drawer.effect) setText(effect, drawer.effect);
    setText(byId('drawer-report'), drawer.report);
    const pill = byId('drawer-pill');
    const line = lines[pill.dataset.engine ?? ''];
    // A new state has other actions and reasons: redraw the drawer unless the operator is typing.
    if (line && pill.dataset.state !== line.state && !busy()) {
      await visit(here(), { push: false });
      return;
    }
    const checklist = find(document, '#checklist');
    if (checklist?.dataset.unfinished === 'yes') await this.#fillIn(checklist);
  }

  /**
   * Show the next steps, or redraw the drawer after the last one.
   * @param {HTMLElement} checklist
   */
  async #fillIn(checklist) {
    const answer = await fetch(checklist.dataset.address ?? '');
    if (!answer.ok) return;
    const fetched = new DOMParser().parseFromString(await answer.text(), 'text/html').getElementById('checklist');
    if (!fetched) return;
    if (fetched.dataset.unfinished === 'no' && !busy()) await visit(here(), { push: false });
    else checklist.replaceWith(document.adoptNode(fetched));
  }
}

/**
 * Move the focus into the changed drawer.
 * @param {boolean} opened
 */
function focusDrawer(opened) {
  const errors = find(document, '#form-errors') ?? find(document, '#confirm-title');
  if (errors) errors.focus();
  else if (opened) find(document, '.drawer input:not([type=hidden]), .drawer .drawer-title a')?.focus();
}

/** @param {string} address */
async function open(address) {
  const before = find(document, 'tr.selected')?.dataset.engine;
  if (!(await visit(address))) return;
  const drawer = find(document, '.drawer');
  if (drawer) focusDrawer(true);
  else find(document, `tr[data-engine="${CSS.escape(before ?? '')}"] a`)?.focus();
}

function listenToClicks() {
  document.addEventListener('click', (event) => {
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = closest(event, 'a[data-drawer], .tree thead a, .panel-foot a, .filters a', HTMLAnchorElement);
    const row = isWithin(event, 'a, button, input, select') ? null : closest(event, 'tr[data-engine]');
    const address = link?.href ?? (row && required(row, 'a', HTMLAnchorElement).href);
    if (!address || !(link ?? row)?.closest('#topology')) return;
    if (String(getSelection())) return;
    event.preventDefault();
    open(address);
  });
  addEventListener('popstate', () => visit(location.href, { push: false }));
}

/** Apply filters while typing and store them in the address. */
function listenToFilters() {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const apply = async () => {
    const form = byId('filters', HTMLFormElement);
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      if (value && !(name === 'sort' && value === 'place')) query.append(name, String(value));
    }
    const focused = document.activeElement?.getAttribute('name') ?? '';
    const caret = document.activeElement instanceof HTMLInputElement ? document.activeElement.selectionStart : null;
    if (!(await visit(`${form.action}?${query}`))) return;
    const field = find(document, `#filters [name="${focused}"]`);
    field?.focus();
    if (field instanceof HTMLInputElement && focused === 'q') field.setSelectionRange(caret, caret);
  };
  document.addEventListener('input', (event) => {
    if (!isWithin(event, '#filters')) return;
    clearTimeout(timer);
    timer = setTimeout(apply, isWithin(event, '[name=q]') ? FILTER_MS : 0);
  });
  document.addEventListener('submit', (event) => {
    if (event.target !== byId('filters')) return;
    event.preventDefault();
    clearTimeout(timer);
    apply();
  });
}

/** @param {number} by */
function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains('selected'));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + by))];
  open(required(next, 'a', HTMLAnchorElement).href);
}

function listenToKeys() {
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || find(document, 'dialog[open]')) return;
    const close = find(document, '[data-close]', HTMLAnchorElement);
    if (event.key === 'Escape' && close && !holdsInput(document)) {
      open(close.href);
      return;
    }
    if (isWithin(event, FIELDS)) return;
    const action = { j: () => step(1), k: () => step(-1) }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

/** Start the page. */
export function startTopology() {
  const live = new LiveView();
  document.body.classList.add('scripted');
  focusDrawer(false);
  listenToClicks();
  listenToFilters();
  listenToKeys();
  const poll = async () => {
    if (!document.hidden) await live.refresh();
    setTimeout(poll, POLL_MS);
  };
  setTimeout(poll, POLL_MS);
}
