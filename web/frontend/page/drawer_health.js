/* What engine health holds of the engine in the drawer: verdict, reason, evidence, and the verb that answers it. */

import { NARROW } from '../figures/format.js';
import { byId, setText } from './element.js';

const VERDICTS = { probation: 'Returning', suspect: 'Suspect' };

/** The verdict that made a gateway call the engine degraded; '' for none. */
export function healthWord(engine) {
  const [verdict] = (engine.reason ?? '').split(':');
  return engine.state === 'degraded' ? VERDICTS[verdict] ?? '' : '';
}

/** Word, end and share as one sentence. */
export function healthSentence({ word, ends, share }) {
  return `${word}${ends ? `, ${ends}` : ''}${share ? `; gets ${share} of its load` : ''}.`;
}

/** Show the card's verdict; healthy engines show only the verb. */
export function showHealth(card) {
  const health = card?.health;
  byId('drawer-health').hidden = !health || (health.state === 'healthy' && !card.may_steer && !health.reason);
  if (!health) return;
  setText(byId('drawer-health-since'), health.since ? `since ${health.since.clock}${NARROW}UTC` : '');
  setText(byId('drawer-health-word'), healthSentence(health));
  setText(byId('drawer-health-reason'), health.reason);
  setText(byId('drawer-health-evidence'), health.state === 'healthy' || !health.evidence ? '' : `${health.evidence}.`);
  const verb = byId('drawer-health-verb');
  verb.hidden = !card.may_steer;
  setText(verb, health.out ? 'Trust it again' : 'Quarantine');
  verb.href = `/steering/${encodeURIComponent(card.pool)}?do=${health.out ? 'trust' : 'quarantine'}&engine=${encodeURIComponent(card.engine_id)}`;
}
