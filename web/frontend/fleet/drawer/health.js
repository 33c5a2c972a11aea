/* Engine health in the drawer: verdict, reason, evidence, and the action for it. */

import { NARROW, zoneName } from '../../shell/format.js';
import { byId, setText } from '../../shell/element.js';
/** @import { EngineFacts } from '../../live/frame_types.js' */
/** @import { EngineCard } from './engine_card.js' */

/** @type {Record<string, string>} Words of each verb of EngineCard. */
const VERB_WORDS = { quarantine: 'Quarantine', trust: 'End quarantine' };

/** @type {Record<string, string>} */
const VERDICTS = { probation: 'Returning', suspect: 'Suspect' };

/**
 * Return the verdict behind the degraded state; '' for none.
 * @param {EngineFacts} engine
 */
export function healthWord(engine) {
  const [verdict] = (engine.reason ?? '').split(':');
  return engine.state === 'degraded' ? (VERDICTS[verdict] ?? '') : '';
}

/**
 * Return verdict, end, and share as one sentence.
 * @param {{ word: string, ends: string, share: string }} health
 */
export function healthSentence({ word, ends, share }) {
  return `${word}${ends ? `, ${ends}` : ''}${share ? `; gets ${share} of its load` : ''}.`;
}

/**
 * Show the card's verdict; healthy engines show only the action.
 * @param {EngineCard | null} card
 */
export function showHealth(card) {
  const health = card?.health;
  byId('drawer-health').hidden = !health || (health.state === 'healthy' && !card.health_verb && !health.reason);
  if (!health) return;
  setText(byId('drawer-health-since'), health.since ? `since ${health.since.clock}${NARROW}${zoneName()}` : '');
  setText(byId('drawer-health-word'), healthSentence(health));
  // Its figures are those of that time.
  const then = health.reason && health.since ? `At ${health.since.clock}: ` : '';
  setText(byId('drawer-health-reason'), `${then}${health.reason}`);
  setText(byId('drawer-health-evidence'), health.state === 'healthy' || !health.evidence ? '' : `${health.evidence}.`);
  const verb = byId('drawer-health-verb', HTMLButtonElement);
  verb.hidden = !card.health_verb;
  setText(verb, VERB_WORDS[card.health_verb] ?? '');
}
