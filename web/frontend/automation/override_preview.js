/* Previews an override: how many engines it starts or drains, or why it is not allowed. */

import { find } from '../shell/element.js';
import { count } from '../shell/format.js';

/**
 * Describe the effect of the typed number of engines; `now` is the current number, `least` to `most` the allowed range.
 * @param {string} typed
 * @param {{ now: number, least: number, most: number }} bounds
 */
export function previewWords(typed, { now, least, most }) {
  if (!/^\d{1,9}$/.test(typed.trim())) return `Enter a number from ${least} to ${most}.`;
  const wanted = Number(typed);
  if (wanted < least || wanted > most) return `Not allowed: the live policy allows ${least} to ${most}.`;
  if (wanted === now) return `No change: the pool has ${count(now, 'engine')}.`;
  const by = count(Math.abs(wanted - now), 'engine');
  return `${wanted > now ? 'Starts' : 'Drains'} ${by} (${now} → ${wanted}).`;
}

/** Update the line under the form as the operator types. */
export function startOverridePreview() {
  const line = find(document, '#automation-preview');
  const field = find(document, '#field-engines', HTMLInputElement);
  if (!line || !field) return;
  const { now, least, most } = line.dataset;
  const bounds = { now: Number(now), least: Number(least), most: Number(most) };
  const update = () => {
    line.textContent = previewWords(field.value, bounds);
  };
  field.addEventListener('input', update);
  update();
}
