/* Entry of the Steering page of a pool. Words and verbs work without it; it draws the charts and keeps the page fresh. */

import { startToast } from '../access/toast.js';
import { startFreshParts } from './fresh_parts.js';
import { startOverridePreview } from './override_preview.js';
import './steps.js';
import { Timeline } from './timeline.js';

const RANGES = { 1: '5m', 2: '1h', 3: '24h' };
const root = document.getElementById('steering');
const timeline = new Timeline(document.getElementById('steering-charts'));

timeline.load();
startFreshParts(root);
startToast();
startOverridePreview();
(document.querySelector('.ledger-problem') ?? document.querySelector('.drawer input:not([type=hidden])'))?.focus();

for (const button of document.querySelectorAll('#steering-range button')) button.addEventListener('click', () => timeline.setRange(button.dataset.range));
document.getElementById('chart-table').addEventListener('click', () => timeline.toggleTable());

const FAR = 10;
const ON_CHARTS = {
  ArrowLeft: (event) => timeline.moveCursor(event.shiftKey ? -FAR : -1),
  ArrowRight: (event) => timeline.moveCursor(event.shiftKey ? FAR : 1),
  Home: () => timeline.moveCursor(-Infinity),
  End: () => timeline.setCursor(null),
};

document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'Escape') {
    const close = document.querySelector('.drawer [data-close]');
    if (event.target.closest('input, select')) event.target.blur();
    else if (close) close.click();
    else timeline.setCursor(null);
    return;
  }
  if (event.target.closest('input, textarea, select')) return;
  const action = event.target.closest('#chart-rows') ? ON_CHARTS[event.key] : undefined;
  if (action) action(event);
  else if (RANGES[event.key]) timeline.setRange(RANGES[event.key]);
  else if (event.key.toLowerCase() === 't' && !event.repeat) timeline.toggleTable();
  else return;
  event.preventDefault();
});
