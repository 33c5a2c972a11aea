/* The bottom line and the clock of the range: versions in force, how fresh the engines' reports are. */

import { clock } from '../figures/format.js';
import { byId, setText } from './element.js';

const FRESH_S = 3;

/** "7 fresh, 1 old" over the ages of reports in seconds; NaN means never heard. */
export function reportWords(ages) {
  const fresh = ages.filter((age) => age <= FRESH_S).length;
  const never = ages.filter(Number.isNaN).length;
  const old = ages.length - fresh - never;
  return [`${fresh} fresh`, old ? `${old} old` : '', never ? `${never} never heard` : ''].filter(Boolean).join(', ');
}

export function updateStatusLine(state) {
  const versions = [...new Set(state.pools.map((pool) => `v${pool.policy_version}`))].slice(0, 4).join(', ');
  setText(byId('status-versions'), versions ? `Topology v${state.snapshotVersion} · ${versions.includes(',') ? 'policies' : 'policy'} ${versions}` : '');
  const ages = state.engines.map((_, row) => state.nowOf('report_age_s', row));
  setText(byId('status-reports'), ages.length ? `Engine reports: ${reportWords(ages)}` : '');
  if (state.index !== null) setText(byId('range-clock'), `${clock(state.timeOf(state.first))} – ${clock(state.timeOf(state.index + 1))} UTC`);
}
