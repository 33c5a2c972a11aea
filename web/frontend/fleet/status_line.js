/* The bottom line and the clock of the range: active versions, age of the engines' reports. */

import { whole } from '../shell/format.js';
import { byId, setText } from '../shell/element.js';
/** @import { FleetState } from '../live/fleet_state.js' */

const FRESH_S = 3;

/**
 * Return "7 fresh, 1 old" for report ages in seconds; NaN is no report.
 * @param {number[]} ages
 */
export function reportWords(ages) {
  const fresh = ages.filter((age) => age <= FRESH_S).length;
  const never = ages.filter(Number.isNaN).length;
  const old = ages.length - fresh - never;
  return [`${whole(fresh)} fresh`, old ? `${whole(old)} old` : '', never ? `${whole(never)} without a report` : '']
    .filter(Boolean)
    .join(', ');
}

/**
 * Write both parts; `past` views have no versions and reports.
 * @param {FleetState} state
 * @param {boolean} past
 */
export function updateStatusLine(state, past) {
  const versions = [...new Set(state.pools.map((pool) => `v${pool.policy_version}`))].slice(0, 4).join(', ');
  const topology = past ? '' : `Topology v${state.snapshotVersion} · `;
  setText(
    byId('status-versions'),
    versions ? `${topology}${versions.includes(',') ? 'policies' : 'policy'} ${versions}` : '',
  );
  const ages = state.engines.flatMap((engine, row) =>
    engine.state === 'removed' ? [] : [state.nowOf('report_age_s', row)],
  );
  setText(byId('status-reports'), ages.length && !past ? `Engine reports: ${reportWords(ages)}` : '');
}
