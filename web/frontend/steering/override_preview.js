/* Says before the click what a number of engines does: how many are started or drained, or that it is not allowed. */

import { count } from '../figures/format.js';

/** What fixing the pool at the typed number does; `now` engines there are, `least` to `most` are allowed. */
export function previewWords(typed, { now, least, most }) {
  if (!/^\d{1,9}$/.test(typed.trim())) return `Type a number from ${least} to ${most}.`;
  const wanted = Number(typed);
  if (wanted < least || wanted > most) return `Not allowed: the live policy allows ${least} to ${most}.`;
  if (wanted === now) return `Changes nothing now: there are ${count(now, 'engine')}.`;
  const by = count(Math.abs(wanted - now), 'engine');
  return `${wanted > now ? 'Starts' : 'Drains'} ${by} (${now} → ${wanted}).`;
}

/** Keep the line under the form true while somebody types. */
export function startOverridePreview() {
  const line = document.getElementById('steering-preview');
  const field = document.getElementById('field-engines');
  if (!line || !field) return;
  const bounds = Object.fromEntries(Object.entries(line.dataset).map(([name, value]) => [name, Number(value)]));
  const update = () => { line.textContent = previewWords(field.value, bounds); };
  field.addEventListener('input', update);
  update();
}
