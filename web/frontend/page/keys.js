/* Keys of the Fleet page. None acts inside a field or an open dialog, and nothing dangerous has one. */

import { byId } from './element.js';

const PAGES = { f: '/', d: '/decisions', p: '/policies', e: '/experiments', t: '/topology', j: '/jobs', a: '/audit' };
const GO_MS = 1500;

/** Whether a key press belongs to the control under the focus rather than to the page. */
function taken(event) {
  const { target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return true;
  if (target.closest('input, textarea, select, [contenteditable]')) return true;
  return [' ', 'Enter'].includes(event.key) && Boolean(target.closest('button, a, summary'));
}

/** Listen on the whole page; `actions` {view, toggleLive, toggleTable, setRange, search} are what the keys do. */
export function listenToKeys({ view, toggleLive, toggleTable, setRange, search }) {
  const far = (event) => (event.shiftKey ? 10 : 1);
  const actions = {
    ArrowUp: (event) => view.moveCursor(-far(event), 0),
    ArrowDown: (event) => view.moveCursor(far(event), 0),
    ArrowLeft: (event) => view.moveCursor(0, -far(event)),
    ArrowRight: (event) => view.moveCursor(0, far(event)),
    Home: () => view.moveCursor(0, -view.state.columns),
    End: () => view.moveCursor(0, view.state.columns),
    Enter: () => view.enter(),
    Escape: () => {
      if (view.decisionId) view.closeDecision();
      else if (view.engineId) view.openEngine('');
      else view.setCursor(null);
    },
    ' ': toggleLive,
    t: toggleTable,
    1: () => setRange('5m'),
    2: () => setRange('1h'),
    3: () => setRange('24h'),
    '/': search,
    j: () => view.stepEngine(1),
    k: () => view.stepEngine(-1),
  };
  document.addEventListener('keydown', (event) => {
    if (taken(event)) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || event.repeat && !event.key.startsWith('Arrow')) return;
    event.preventDefault();
    action(event);
  });
}

/** `?` and the button in the bottom line open the list of keys; `G` and a letter go to a page. */
export function listenToShellKeys() {
  const dialog = document.getElementById('keys-dialog');
  if (dialog) byId('keys-button').addEventListener('click', () => dialog.showModal());
  let goUntil = 0;
  document.addEventListener('keydown', (event) => {
    if (taken(event)) return;
    const key = event.key.toLowerCase();
    if (performance.now() < goUntil && PAGES[key]) {
      event.stopImmediatePropagation();
      location.assign(PAGES[key]);
    }
    goUntil = key === 'g' ? performance.now() + GO_MS : 0;
    if (key === '?' && dialog) dialog.showModal();
  });
}
