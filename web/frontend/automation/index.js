/* Entry of the Automation page of a pool. Texts and actions work without it.
   It draws the charts and keeps the page fresh. */

import { byId, closest, find, findAll, isWithin, required } from '../shell/element.js';
import { startToast } from '../shell/page_toast.js';
import { morph, startRefresh } from '../shell/refresh.js';
import { startOverridePreview } from './override_preview.js';
import './steps.js';
import { Timeline } from './timeline.js';

/** @type {Record<string, string>} */
const RANGES = { 1: '5m', 2: '1h', 3: '24h' };
const root = byId('automation');
const timeline = new Timeline(byId('automation-charts'));

timeline.load();
// The charts refresh themselves.
startRefresh(root, (_, fresh) => {
  for (const part of ['automation-top', 'automation-lists']) morph(byId(part), required(fresh, `#${part}`));
});
startToast();
startOverridePreview();
(find(document, '.ledger-problem') ?? find(document, '.drawer input:not([type=hidden])'))?.focus();

for (const button of findAll(document, '#automation-range button'))
  button.addEventListener('click', () => timeline.setRange(button.dataset.range ?? ''));
byId('chart-table').addEventListener('click', () => timeline.toggleTable());

const FAR = 10;
/** @type {Record<string, (event: KeyboardEvent) => void>} */
const ON_CHARTS = {
  ArrowLeft: (event) => timeline.moveCursor(event.shiftKey ? -FAR : -1),
  ArrowRight: (event) => timeline.moveCursor(event.shiftKey ? FAR : 1),
  Home: () => timeline.moveCursor(-Infinity),
  End: () => timeline.setCursor(null),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || find(document, 'dialog[open]')) return;
  if (event.key === 'Escape') {
    const close = find(document, '.drawer [data-close]');
    const field = closest(event, 'input, select');
    if (field) field.blur();
    else if (close) close.click();
    else timeline.setCursor(null);
    return;
  }
  if (isWithin(event, 'input, textarea, select')) return;
  const action = isWithin(event, '#chart-rows') ? ON_CHARTS[event.key] : undefined;
  if (action) action(event);
  else if (RANGES[event.key]) timeline.setRange(RANGES[event.key]);
  else if (event.key.toLowerCase() === 't' && !event.repeat) timeline.toggleTable();
  else return;
  event.preventDefault();
});
