/* Keys of the Fleet page. They are off in fields and open dialogs. No destructive action has one. */

import { onKeys } from '../shell/keys.js';
/** @import { Range } from '../live/timeline.js' */
/** @import { View } from './view.js' */

/**
 * Actions of the keys.
 * @typedef {object} FleetKeys
 * @property {View} view
 * @property {() => void} toggleLive
 * @property {() => void} toggleTable
 * @property {(range: Range) => void} setRange
 */

/**
 * Listen on the whole page.
 * @param {FleetKeys} keys
 */
export function listenToKeys({ view, toggleLive, toggleTable, setRange }) {
  /** @param {KeyboardEvent} event */
  const far = (event) => (event.shiftKey ? 10 : 1);
  onKeys({
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
    j: () => view.stepEngine(1),
    k: () => view.stepEngine(-1),
  });
}
