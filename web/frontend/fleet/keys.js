/* Keys of the Fleet page. None acts inside a field or an open dialog, and nothing dangerous has one. */

import { keyIsTaken } from '../shell/keys.js';
/** @import { Range } from '../live/timeline.js' */
/** @import { View } from './view.js' */

/**
 * What the keys do.
 * @typedef {object} FleetKeys
 * @property {View} view
 * @property {() => void} toggleLive
 * @property {() => void} toggleTable
 * @property {(range: Range) => void} setRange
 * @property {() => void} search
 */

/**
 * Listen on the whole page.
 * @param {FleetKeys} keys
 */
export function listenToKeys({ view, toggleLive, toggleTable, setRange, search }) {
  /** @param {KeyboardEvent} event */
  const far = (event) => (event.shiftKey ? 10 : 1);
  /** @type {Record<string, (event: KeyboardEvent) => void>} */
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
    if (keyIsTaken(event)) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || (event.repeat && !event.key.startsWith('Arrow'))) return;
    event.preventDefault();
    action(event);
  });
}
